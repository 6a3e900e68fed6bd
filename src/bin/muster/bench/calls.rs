//! The calls that are timed: those of the C ABI, as every user makes them.

use super::options::{Collective, Options, Root};
use muster::ffi;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// This process as one rank of a cluster.
pub struct Rank {
    cluster: *mut ffi::muster_cluster_t,
    world: *mut ffi::muster_group_t,
    pub rank: usize,
    pub size: usize,
}

/// A rank's buffers, for the largest size.
pub struct Buffers {
    pub input: Vec<u8>,
    pub output: Vec<u8>,
}

/// The sentence of a call that failed.
pub fn checked(what: &str, status: i32) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the last error's text ends with a zero byte, and lives until this thread's next error.
    let words = unsafe { CStr::from_ptr(ffi::muster_last_error()) }.to_string_lossy();
    Err(format!("{what}: {words}"))
}

impl Rank {
    /// Joins the cluster that the environment describes.
    pub fn join() -> Result<Rank, String> {
        let mut cluster = null_mut();
        // SAFETY: no configuration, and a place for the handle.
        checked("muster_init", unsafe { ffi::muster_init(null(), &mut cluster) })?;
        // SAFETY: the cluster was just joined.
        let world = unsafe { ffi::muster_world(cluster) };
        // SAFETY: as above.
        let (rank, size) = unsafe { (ffi::muster_group_rank(world), ffi::muster_group_size(world)) };
        match (usize::try_from(rank), usize::try_from(size)) {
            (Ok(rank), Ok(size)) => Ok(Rank { cluster, world, rank, size }),
            _ => Err("a parameter server takes no part in a benchmark".to_owned()),
        }
    }

    /// Its handle, which lives as long as this does.
    pub fn cluster(&self) -> *mut ffi::muster_cluster_t {
        self.cluster
    }

    /// One call of the collective with `bytes` from each rank. Its number decides which rank is the root, if the root
    /// goes round.
    pub fn call(&self, options: &Options, bytes: usize, nth: usize, buffers: &mut Buffers) -> Result<(), String> {
        let (dtype, op) = (options.dtype.code(), options.op.code() as i32);
        let count = bytes / options.dtype.size();
        let root = match options.root {
            Root::Fixed(root) => root as i32,
            Root::Round => (nth % self.size) as i32,
        };
        let (from, to) = (buffers.input.as_mut_ptr(), buffers.output.as_mut_ptr());
        let in_place: *const u8 = if options.in_place { to } else { from };
        let (from, to, in_place) = (from.cast(), to.cast(), in_place.cast());
        let world = self.world;
        let (next, before) = ((self.rank + 1) % self.size, (self.rank + self.size - 1) % self.size);
        // SAFETY: the group lives as long as the cluster, and `Buffers` are as long as `lengths` says, which is what each
        // collective takes of this many elements.
        let status = unsafe {
            match options.collective {
                Collective::Allgather => ffi::muster_allgather(world, from, to, count, dtype),
                Collective::Allreduce => ffi::muster_allreduce(world, in_place, to, count, dtype, op),
                Collective::Alltoall => ffi::muster_alltoall(world, from, to, count, dtype),
                Collective::Barrier => ffi::muster_barrier(world),
                Collective::Broadcast => ffi::muster_broadcast(world, to, count, dtype, root),
                Collective::Gather => ffi::muster_gather(world, from, to, count, dtype, root),
                Collective::Reduce => ffi::muster_reduce(world, in_place, to, count, dtype, op, root),
                Collective::ReduceScatter => ffi::muster_reduce_scatter(world, from, to, count, dtype, op),
                Collective::Scatter => ffi::muster_scatter(world, from, to, count, dtype, root),
                Collective::Sendrecv => {
                    let (next, before) = (next as i32, before as i32);
                    ffi::muster_sendrecv(world, from, count, dtype, next, 0, to, count, dtype, before, 0, null_mut(), 0)
                }
            }
        };
        checked(options.name, status)?;
        if options.barrier {
            self.barrier()?;
        }
        Ok(())
    }

    /// A sum in place that does not wait, then what the program does meanwhile, and the wait.
    pub fn iallreduce(
        &self,
        options: &Options,
        bytes: usize,
        buffers: &mut Buffers,
        meanwhile: impl FnOnce(),
    ) -> Result<(), String> {
        let (place, count) = (buffers.output.as_mut_ptr(), bytes / options.dtype.size());
        let (dtype, op, mut request) = (options.dtype.code(), options.op.code() as i32, null_mut());
        // SAFETY: the group lives as long as the cluster, and the buffer, which is as long as that, outlives the request.
        let started =
            unsafe { ffi::muster_iallreduce(self.world, place.cast(), place.cast(), count, dtype, op, &mut request) };
        checked("muster_iallreduce", started)?;
        meanwhile();
        // SAFETY: the request is live, and nobody uses it afterwards.
        let ended = checked("muster_request_wait", unsafe { ffi::muster_request_wait(request, -1) });
        // SAFETY: as above.
        unsafe { ffi::muster_request_free(request) };
        ended
    }

    /// Waits for all.
    pub fn barrier(&self) -> Result<(), String> {
        // SAFETY: the group lives as long as the cluster.
        checked("muster_barrier", unsafe { ffi::muster_barrier(self.world) })
    }

    /// The numbers of all ranks, in order of rank.
    pub fn gather(&self, mine: &[f64]) -> Result<Vec<f64>, String> {
        let mut all = vec![0.0; mine.len() * self.size];
        let dtype = muster::types::DType::Float64.code();
        // SAFETY: both are as long as the count says.
        let status = unsafe {
            ffi::muster_allgather(self.world, mine.as_ptr().cast(), all.as_mut_ptr().cast(), mine.len(), dtype)
        };
        checked("muster_allgather", status).map(|()| all)
    }

    /// Leaves.
    pub fn leave(self) -> Result<(), String> {
        // SAFETY: the cluster is live, and nobody uses it afterwards.
        let status = unsafe { ffi::muster_finalize(self.cluster) };
        let outcome = checked("muster_finalize", status);
        // SAFETY: as above.
        unsafe { ffi::muster_cluster_free(self.cluster) };
        outcome
    }
}

/// How long input and output must be for this many bytes on so many ranks.
pub fn lengths(collective: Collective, bytes: usize, ranks: usize) -> (usize, usize) {
    match collective {
        Collective::Barrier => (0, 0),
        Collective::Allreduce | Collective::Reduce | Collective::Broadcast | Collective::Sendrecv => (bytes, bytes),
        Collective::Allgather | Collective::Gather => (bytes, bytes * ranks),
        Collective::ReduceScatter | Collective::Scatter => (bytes * ranks, bytes),
        Collective::Alltoall => (bytes * ranks, bytes * ranks),
    }
}
