//! What data frames say of the calls before theirs. `failure_test.rs` tests what becomes of ranks that have not called
//! the same, and `ctests/staged.c` does so with processes.

use crate::runtime::collectives::failure::tests::Bench;
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::memory::buffer::CallBuffers;
use crate::types::{hash, Call, CallDigest, CallKind, DType, Epoch, GroupId};
use crate::wire::{DataHeader, CHECKSUM_BYTES, DATA_HEADER_BYTES, HEADER_BYTES};
use std::io::Read;

#[test]
fn a_frame_tells_of_every_call_that_has_ended_before_it_and_of_no_other() {
    let mut bench = Bench::new();
    bench.stand(0);
    let (kind, dtype) = (CallKind::Broadcast, Some(DType::Uint8));
    let call = |count| Call { kind, dtype, op: None, root: Some(0), count, layout: 0 };
    let (mut link, mut digest) = (bench.peers[0].try_clone().unwrap(), CallDigest::default());
    let mut sends = |count: u64, sequence: u64, digest: &mut CallDigest| {
        let mut buffer = vec![0; count as usize];
        bench.group.run(Work::plain(call(count), CallBuffers::of(&[], &mut buffer))).expect("a root waits for nobody");
        let mut frame = vec![0; HEADER_BYTES + DATA_HEADER_BYTES + buffer.len() + CHECKSUM_BYTES];
        link.read_exact(&mut frame).unwrap();
        let header: &[u8; DATA_HEADER_BYTES] = frame[HEADER_BYTES..].first_chunk().unwrap();
        let expected = DataHeader { sequence, digest: digest.in_short(), ..DataHeader::of_first(call(count)) };
        assert_eq!(DataHeader::decode(header), Ok(expected));
        digest.add(call(count).signature());
    };
    sends(1, 1, &mut digest);
    sends(2, 2, &mut digest);
    assert!(bench.registry.create(&bench.group, &[4]).is_err(), "it has four members");
    sends(3, 3, &mut digest);
    bench.state.view().made.insert((Epoch(1), GroupId::WORLD, 1), Ok(None));
    assert!(bench.registry.create(&bench.group, &[3, 1]).expect("it is made").is_none());
    let (kind, layout) = (CallKind::GroupCreate, hash([3, 1]));
    digest.add(Call { kind, dtype: None, op: None, root: None, count: 2, layout }.signature());
    sends(4, 5, &mut digest);
}
