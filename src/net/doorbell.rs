//! A socket by which processes of one host wake each other, and hand each other one descriptor: a datagram socket with an abstract
//! name, which is in no file system.
//!
//! A sleeper watches its own doorbell. To ring it, another process sends a byte to its name. A doorbell that is full has
//! been rung, so nothing is lost if there is no room for the byte. But rings that sleepers have not taken yet fill the
//! sender's own buffer (some 270 rings). If that buffer is full, a ring is lost. So a sender asks for a buffer of that
//! size where the host's default is less. It rings each sleeper once, and a sleeper takes its rings when it wakes. A
//! stranger on the host can ring, too: that costs the sleeper one look.
//!
//! Abstract names belong to a network namespace, so processes of several containers reach each other if they share one.
//!
//! A descriptor counts only if a process of the same user has sent it, as the kernel says, together with the proof that both know.

use super::call::uninterrupted;
use super::fork::Guarded;
use super::host;
use super::limit::shortage;
use super::socket::set_option;
use libc::c_int;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// How many bytes a doorbell's name has.
pub const NAME_BYTES: usize = 16;
/// How many bytes prove that a descriptor is the one that was announced.
pub const PROOF_BYTES: usize = 32;
/// How many rings are taken at a time.
const RINGS_MAX: usize = 512;
/// The sender's buffer: Linux's usual default.
const SEND_BYTES: usize = 212_992;
/// How many datagrams are looked at for a descriptor: more than a doorbell holds.
const LOOKED_AT: usize = 1024;

/// The address of a doorbell: what others need to ring it.
#[derive(Clone, Debug)]
pub struct Address(SockAddr);

impl Address {
    /// The doorbell with this name.
    pub fn of(name: &[u8; NAME_BYTES]) -> io::Result<Address> {
        let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Address(SockAddr::unix(format!("\0muster-{digits}"))?))
    }
}

/// A doorbell of this process.
#[derive(Debug)]
pub struct Doorbell(Guarded<Socket>);

/// Room for one descriptor and the sender's credentials, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; 128]);

impl Doorbell {
    /// Makes a doorbell with this name, which no other may have.
    pub fn bind(name: &[u8; NAME_BYTES]) -> io::Result<Doorbell> {
        let kind = Type::DGRAM.cloexec().nonblocking();
        let socket = Guarded::create(|| Socket::new_raw(Domain::UNIX, kind, None))?;
        set_option(&*socket, libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        if socket.send_buffer_size()? < SEND_BYTES {
            let _ = socket.set_send_buffer_size(SEND_BYTES / 2); // Linux doubles it; a host may allow less
        }
        socket.bind(&Address::of(name)?.0)?;
        Ok(Doorbell(socket))
    }

    /// The descriptor that can be read once the doorbell was rung, for a `Watch`.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Rings another doorbell. A full doorbell has been rung already, and one that is gone needs no ring. Returns false if
    /// the system had no memory for the ring: then the caller must ring again at the next opportunity.
    pub fn ring(&self, other: &Address) -> bool {
        let rung = if self.0.is_inherited() { Ok(1) } else { self.0.send_to(&[0], &other.0) };
        !matches!(rung.map_err(|error| error.raw_os_error()), Err(Some(libc::ENOBUFS | libc::ENOMEM)))
    }

    /// Takes the rings that have come, so many at most: any process of the host may ring on and on. One that is left wakes the
    /// sleeper once more.
    pub fn drain(&self) {
        let mut byte = [MaybeUninit::uninit(); 1];
        for _ in 0..RINGS_MAX {
            if self.0.recv(&mut byte).is_err() {
                return;
            }
        }
    }

    /// Hands a descriptor to the process that has the other doorbell.
    pub fn hand(&self, other: &Address, proof: &[u8; PROOF_BYTES], file: &File) -> io::Result<()> {
        let mut control = Control([0; 128]);
        let mut part = libc::iovec { iov_base: proof.as_ptr().cast_mut().cast(), iov_len: proof.len() };
        // SAFETY: an all-zero message is a valid empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = other.0.as_ptr().cast_mut().cast();
        message.msg_namelen = other.0.len();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as _;
        // SAFETY: the message has room for one header, as was just said.
        let head = unsafe { &mut *libc::CMSG_FIRSTHDR(&raw const message) };
        (head.cmsg_level, head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        // SAFETY: computes a length.
        head.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as _;
        // SAFETY: the header has room for one descriptor behind it.
        let place = unsafe { libc::CMSG_DATA(head) }.cast::<c_int>();
        // SAFETY: writes to that room, which need not be aligned.
        unsafe { place.write_unaligned(file.as_raw_fd()) };
        uninterrupted(|| {
            // SAFETY: the message and all that it points to outlive the call.
            let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }

    /// Takes the descriptor that was handed over with this proof. It must have come already. The kernel tells the sender's real
    /// user, which must be this process's.
    pub fn take(&self, proof: &[u8; PROOF_BYTES]) -> io::Result<Guarded<File>> {
        for _ in 0..LOOKED_AT {
            let mut found = None;
            let taken = Guarded::create(|| {
                let (bytes, file, user) = uninterrupted(|| self.receive())?;
                found = Some((bytes == *proof, user));
                file.ok_or_else(|| self.without_descriptor())
            });
            match (taken, found) {
                (Ok(file), Some((true, user))) if user == Some(host::real_user()) => return Ok(file),
                (Ok(_), Some((true, user))) => {
                    let user = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
                    return Err(io::Error::other(format!(
                        "it is from {user}, and this process belongs to user {}",
                        host::real_user()
                    )));
                }
                (Err(error), None) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("it has not come"));
                }
                (Err(error), None | Some((true, _))) => return Err(error),
                _ => {} // a ring, or something from a stranger
            }
        }
        Err(io::Error::other("too many other datagrams came before it"))
    }

    /// Why a datagram has come without its descriptor. If no descriptor is free the kernel delivers the rest, and gives no error.
    fn without_descriptor(&self) -> io::Error {
        let shortage = self.0.try_clone().err().as_ref().and_then(shortage);
        io::Error::other(shortage.map_or_else(
            || "the system has not let its descriptor through".to_owned(),
            |whose| format!("no descriptor is free: {whose}"),
        ))
    }

    /// Receives one datagram: its bytes up to the length of a proof, the descriptor in it, and the user that has sent it.
    fn receive(&self) -> io::Result<([u8; PROOF_BYTES], Option<File>, Option<u32>)> {
        let (mut control, mut bytes) = (Control([0; 128]), [0; PROOF_BYTES]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: an all-zero message is a valid empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message and all that it points to outlive the call.
        if unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (mut file, mut user) = (None, None);
        // SAFETY: the kernel has filled the message in.
        let mut head = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !head.is_null() {
            // SAFETY: the header lies in `control`, as the kernel has left it.
            let (kind, length, data) = unsafe { ((*head).cmsg_type, (*head).cmsg_len as usize, libc::CMSG_DATA(head)) };
            match kind {
                libc::SCM_RIGHTS => {
                    // SAFETY: computes a length.
                    let bytes = length.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
                    for at in 0..bytes / size_of::<c_int>() {
                        // SAFETY: such a header is followed by so many descriptors, which belong to this process from now on.
                        let one = unsafe { File::from_raw_fd(data.cast::<c_int>().add(at).read_unaligned()) };
                        file.get_or_insert(one); // any more are closed
                    }
                }
                libc::SCM_CREDENTIALS => {
                    // SAFETY: such a header is followed by credentials.
                    user = Some(unsafe { data.cast::<libc::ucred>().read_unaligned() }.uid);
                }
                _ => {}
            }
            // SAFETY: the header is one of this message's.
            head = unsafe { libc::CMSG_NXTHDR(&raw const message, head) };
        }
        Ok((bytes, file, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::shm::{page_bytes, Segment};
    use crate::net::testfork::ForkedChild;
    use crate::net::{Token, Watch};
    use std::time::Duration;

    fn pair() -> ([Doorbell; 2], [Address; 2]) {
        let names = [[0; 2]; 2].map(|_| host::random_bytes().unwrap());
        (names.map(|name| Doorbell::bind(&name).unwrap()), names.map(|name| Address::of(&name).unwrap()))
    }

    #[test]
    fn a_ring_is_seen_and_many_are_one() {
        let ([one, two], [_, of_two]) = pair();
        let mut watch = Watch::default();
        watch.add(Token(1), two.descriptor(), true, false);
        for _ in 0..3000 {
            one.ring(&of_two);
        }
        watch.wait(Some(Duration::from_secs(20)));
        assert_eq!(watch.ready().count(), 1);
        two.drain();
        watch.wait(Some(Duration::ZERO));
        assert_eq!(watch.ready().count(), 0);
        drop(two);
        one.ring(&of_two); // nobody is there
    }

    /// As many as share memory at most, none of which takes its rings but one.
    #[test]
    fn one_of_many_is_rung_again_although_the_others_have_not_looked() {
        let name = || host::random_bytes().unwrap();
        let own = Doorbell::bind(&name()).unwrap();
        let others: Vec<_> =
            (0..63).map(|_| name()).map(|name| (Doorbell::bind(&name).unwrap(), Address::of(&name).unwrap())).collect();
        for _ in 0..2 {
            assert!(others.iter().all(|(_, address)| own.ring(address)));
        }
        let (one, address) = &others[0];
        one.drain();
        own.ring(address);
        let mut watch = Watch::default();
        watch.add(Token(1), one.descriptor(), true, false);
        watch.wait(Some(Duration::ZERO));
        assert_eq!(watch.ready().count(), 1);
    }

    #[test]
    fn a_descriptor_comes_with_its_proof_and_no_other_does() {
        let ([one, two], [_, of_two]) = pair();
        let (segment, file) = Segment::create(page_bytes()).unwrap();
        let error = two.take(&[7; PROOF_BYTES]).unwrap_err();
        assert!(error.to_string().contains("has not come"), "{error}");
        one.ring(&of_two);
        one.hand(&of_two, &[6; PROOF_BYTES], &file).unwrap();
        one.hand(&of_two, &[7; PROOF_BYTES], &file).unwrap();
        let taken = two.take(&[7; PROOF_BYTES]).unwrap();
        segment.store(0, 3);
        assert_eq!(Segment::open(&taken, page_bytes()).unwrap().load(0), 3);
        let error = two.take(&[7; PROOF_BYTES]).unwrap_err();
        assert!(error.to_string().contains("has not come"), "{error}");
    }

    #[test]
    fn a_descriptor_for_which_there_is_no_room_is_told_as_such() {
        let child = ForkedChild::start(|| {
            let ([one, two], [_, of_two]) = pair();
            let (_segment, file) = Segment::create(page_bytes()).unwrap();
            one.hand(&of_two, &[7; PROOF_BYTES], &file).unwrap();
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: `limit` outlives the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            // SAFETY: takes an integer, and makes a descriptor that the child's end closes.
            while unsafe { libc::dup(file.as_raw_fd()) } >= 0 {}
            let error = two.take(&[7; PROOF_BYTES]).unwrap_err().to_string();
            i32::from(!error.contains("no descriptor is free: its process may hold 64: raise that limit"))
        });
        assert_eq!(child.exit_code(), 0);
    }

    #[test]
    fn a_name_is_one_process_s_own() {
        let name = host::random_bytes().unwrap();
        let _first = Doorbell::bind(&name).unwrap();
        assert_eq!(Doorbell::bind(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let nobody = Address::of(&host::random_bytes().unwrap()).unwrap();
        let (_segment, file) = Segment::create(page_bytes()).unwrap();
        let error = _first.hand(&nobody, &[0; PROOF_BYTES], &file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
