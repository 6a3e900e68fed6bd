//! Timing one rank's calls, and checking what they gave.

use super::calls::{lengths, Buffers, Rank};
use super::options::{reduces, Collective, Options, Root};
use muster::types::{DType, ReduceOp};
use std::time::Instant;

/// How long one size is timed, unless the number of iterations is given.
pub const SPAN_S: f64 = 0.25;
/// The limits to the number of iterations if it is not given.
const ITERATIONS: (f64, f64) = (5.0, 20_000.0);
/// How often a fifth of that time is spent before, untimed.
const SETTLING: usize = 2;
/// The numbers in the buffers repeat after so many elements.
const PERIOD: usize = 13;

/// The figures of one size, on all ranks.
pub struct Row {
    pub bytes: usize,
    pub count: usize,
    pub iterations: usize,
    /// Microseconds per call on the slowest rank.
    pub p50: f64,
    pub p95: f64,
    /// Microseconds per call on rank 0.
    pub own_p50: f64,
    /// Wrong elements on all ranks; none if they were not looked at.
    pub wrong: Option<u64>,
}

/// Measures every size. The rows are the same on every rank.
pub fn measure(rank: &Rank, options: &Options, mut each: impl FnMut(&Row)) -> Result<(), String> {
    let largest = options.sizes.iter().max().copied().unwrap_or(0) as usize;
    let (input, output) = lengths(options.collective, largest, rank.size);
    let mut buffers = Buffers { input: zeros(input)?, output: zeros(output)? };
    for bytes in options.sizes.iter().map(|bytes| *bytes as usize) {
        each(&one_size(rank, options, bytes, &mut buffers)?);
    }
    Ok(())
}

/// A buffer of so many zero bytes, or why there is none.
pub fn zeros(bytes: usize) -> Result<Vec<u8>, String> {
    let mut zeros = Vec::new();
    let why = |_| format!("there is not enough memory for a buffer of {bytes} bytes, which the largest size needs");
    zeros.try_reserve_exact(bytes).map_err(why)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

fn one_size(rank: &Rank, options: &Options, bytes: usize, buffers: &mut Buffers) -> Result<Row, String> {
    fill(rank, options, bytes, buffers);
    rank.call(options, bytes, 0, buffers)?;
    let wrong = if options.check { wrong_elements(rank, options, bytes, buffers) } else { 0 };
    rank.barrier()?;
    let mut a_call = timed(rank, options, bytes, options.warmup as usize, buffers)?;
    for _ in 0..SETTLING {
        // The caches, and the system's idea of which process runs where, take a while to settle, and the guess with
        // them.
        let calls = agreed(rank, SPAN_S / 5.0 / a_call)?;
        a_call = timed(rank, options, bytes, calls, buffers)?;
    }
    let guess = agreed(rank, SPAN_S / a_call)?;
    let iterations = options.iterations.map_or(guess, |iterations| iterations as usize);
    let mut took: Vec<u64> = Vec::with_capacity(iterations);
    for nth in 0..iterations {
        let begun = Instant::now();
        rank.call(options, bytes, nth, buffers)?;
        took.push(begun.elapsed().as_nanos() as u64);
    }
    took.sort_unstable();
    let quantile = |per_cent: usize| took[(iterations * per_cent / 100).min(iterations - 1)] as f64 / 1000.0;
    let all = rank.gather(&[quantile(50), quantile(95), wrong as f64])?;
    let slowest = |which: usize| all.iter().skip(which).step_by(3).copied().fold(0.0, f64::max);
    Ok(Row {
        bytes,
        count: bytes / options.dtype.size(),
        iterations,
        p50: slowest(0),
        p95: slowest(1),
        own_p50: all[0],
        wrong: options.check.then(|| all.iter().skip(2).step_by(3).sum::<f64>() as u64),
    })
}

/// Seconds per call of so many calls.
fn timed(rank: &Rank, options: &Options, bytes: usize, calls: usize, buffers: &mut Buffers) -> Result<f64, String> {
    let begun = Instant::now();
    for nth in 0..calls {
        rank.call(options, bytes, nth, buffers)?;
    }
    Ok(begun.elapsed().as_secs_f64() / calls as f64)
}

/// How often all ranks call it: as often as rank 0 wishes, within limits.
pub fn agreed(rank: &Rank, wish: f64) -> Result<usize, String> {
    Ok(rank.gather(&[wish.clamp(ITERATIONS.0, ITERATIONS.1)])?[0] as usize)
}

/// The number in a rank's input at this place. The numbers are so small that the sum of all ranks is exact. For an
/// average they are the same on every rank, so that it is exact, too.
fn value(options: &Options, ranks: usize, rank: usize, at: usize) -> i64 {
    let rank = if options.op == ReduceOp::Avg { 0 } else { rank };
    let place = at % PERIOD + 3 * rank;
    if let Some(every) = ones(options, ranks) {
        return i64::from(place.is_multiple_of(every));
    }
    let most = if matches!(options.dtype, DType::Float16 | DType::Bfloat16 | DType::Int8) { 4 } else { 31 };
    (place % most) as i64
}

/// Where the numbers from 0 to 3 would have too large a sum on so many ranks: of how many ranks one has a 1, and the others 0.
/// It is a power of two: that has no factor in common with the 3 by which the ranks' places differ, so the ones are spread evenly.
fn ones(options: &Options, ranks: usize) -> Option<usize> {
    let exact = match options.dtype {
        DType::Bfloat16 => 256,
        DType::Float16 => 2048,
        _ => return None,
    };
    let adds = reduces(options.collective) && matches!(options.op, ReduceOp::Sum | ReduceOp::SumExact);
    let sum = ranks.div_ceil(4) * (1 + 2 + 3);
    (adds && sum > exact).then(|| ranks.div_ceil(exact).next_power_of_two().max(2))
}

/// Gives both buffers what they hold before a call.
pub fn fill(rank: &Rank, options: &Options, bytes: usize, buffers: &mut Buffers) {
    let (input, output) = lengths(options.collective, bytes, rank.size);
    let size = options.dtype.size();
    let repeat = |into: &mut [u8], element: &dyn Fn(usize) -> i64| {
        let block: Vec<u8> =
            (0..PERIOD).flat_map(|at| encode(options.dtype, element(at)).into_iter().take(size)).collect();
        into.chunks_mut(PERIOD * size).for_each(|chunk| chunk.copy_from_slice(&block[..chunk.len()]));
    };
    repeat(&mut buffers.input[..input], &|at| value(options, rank.size, rank.rank, at));
    let is_input = match options.collective {
        Collective::Broadcast => rank.rank == root(options),
        Collective::Allreduce | Collective::Reduce => options.in_place,
        _ => false,
    };
    let before = |at| if is_input { value(options, rank.size, rank.rank, at) } else { 99 };
    repeat(&mut buffers.output[..output], &before);
}

fn root(options: &Options) -> usize {
    match options.root {
        Root::Fixed(root) => root as usize,
        Root::Round => 0,
    }
}

/// How many elements of the output are not what they should be after the first call.
pub fn wrong_elements(rank: &Rank, options: &Options, bytes: usize, buffers: &Buffers) -> u64 {
    let size = options.dtype.size();
    let (_, output) = lengths(options.collective, bytes, rank.size);
    let count = bytes / size;
    if count == 0 || (has_root_only(options.collective) && rank.rank != root(options)) {
        return 0;
    }
    let wrong =
        |(at, found): &(usize, &[u8])| encode(options.dtype, expected(rank, options, count, *at))[..size] != **found;
    buffers.output[..output].chunks(size).enumerate().filter(|it| wrong(it)).count() as u64
}

fn has_root_only(collective: Collective) -> bool {
    matches!(collective, Collective::Reduce | Collective::Gather)
}

fn expected(rank: &Rank, options: &Options, count: usize, at: usize) -> i64 {
    let of = |other, at| value(options, rank.size, other, at);
    match options.collective {
        Collective::Allreduce | Collective::Reduce => combined(options, rank.size, at),
        Collective::ReduceScatter => combined(options, rank.size, rank.rank * count + at),
        Collective::Allgather | Collective::Gather => of(at / count, at % count),
        Collective::Alltoall => of(at / count, rank.rank * count + at % count),
        Collective::Scatter => of(root(options), rank.rank * count + at),
        Collective::Broadcast => of(root(options), at),
        Collective::Sendrecv => of((rank.rank + rank.size - 1) % rank.size, at),
        Collective::Barrier => 0,
    }
}

/// What a reduction of all ranks' numbers at this place gives.
fn combined(options: &Options, ranks: usize, at: usize) -> i64 {
    let mut values = (0..ranks).map(|rank| value(options, ranks, rank, at));
    match options.op {
        ReduceOp::Min => values.min(),
        ReduceOp::Max => values.max(),
        ReduceOp::Avg => values.next(),
        _ => Some(values.sum()),
    }
    .unwrap_or(0)
}

/// A whole number up to 2048, which a float16 has exactly.
fn small_float16(value: i64) -> u16 {
    let bits = (value as f32).to_bits();
    if value == 0 {
        return 0;
    }
    ((bits >> 13) - (112 << 10)) as u16
}

/// A number as an element. Of these bytes as many count as the type has.
fn encode(dtype: DType, value: i64) -> [u8; 8] {
    match dtype {
        DType::Float32 => u64::from((value as f32).to_bits()).to_le_bytes(),
        DType::Float64 => (value as f64).to_le_bytes(),
        DType::Bfloat16 => u64::from((value as f32).to_bits() >> 16).to_le_bytes(), // exact up to 256
        DType::Float16 => u64::from(small_float16(value)).to_le_bytes(),
        _ => value.to_le_bytes(), // integers that fit: the lowest bytes are the number
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::{parse, COMMAND};
    use super::*;
    use crate::cli::words::{read, Asked};

    fn options(line: &str) -> Options {
        match read(&COMMAND, line.split_whitespace().map(Into::into).collect()) {
            Ok(Asked::With(words)) => parse(&words).expect(line),
            _ => panic!("{line} is right"),
        }
    }

    #[test]
    fn sums_of_halves_are_exact_on_up_to_1024_ranks() {
        let (bfloat16, float16) = (options("allreduce -d bfloat16"), options("reduce -d float16 -o sum_exact"));
        for (ranks, at) in (1..=1024).flat_map(|ranks| (0..PERIOD).map(move |at| (ranks, at))) {
            let sum = combined(&bfloat16, ranks, at);
            let bits = encode(DType::Bfloat16, sum);
            let held = f32::from_bits(u32::from(u16::from_le_bytes([bits[0], bits[1]])) << 16);
            assert_eq!((held as i64, sum <= 256), (sum, true), "of {ranks} ranks at {at}");
            let sum = combined(&float16, ranks, at);
            assert!(sum <= 2048, "{sum} of {ranks} ranks at {at}");
        }
    }

    #[test]
    fn each_rank_has_a_part_in_a_sum_and_only_a_sum_needs_small_numbers() {
        let (sum, max) = (options("reduce_scatter -d bfloat16"), options("allreduce -d bfloat16 -o max"));
        for ranks in [168, 169, 173, 256, 257, 1024] {
            let has_part = |rank| (0..PERIOD).any(|at| value(&sum, ranks, rank, at) > 0);
            assert!((0..ranks).all(has_part), "of {ranks} ranks");
            assert!((0..PERIOD).all(|at| combined(&max, ranks, at) == 3), "of {ranks} ranks");
        }
        assert_eq!(combined(&options("allreduce -d bfloat16 -o avg"), 1024, 2), 2);
        assert_eq!(combined(&options("allreduce -d float32"), 2, 5), 5 + 8);
    }
}
