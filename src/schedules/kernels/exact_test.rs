//! Exact sums against integers that are as long as it takes: every type, any exponents, cancellation, subnormals, ties,
//! infinities, permutations, 0 to 40 vectors.

use super::{divide_slice, environment, reduce_slices, sum_exact};
use crate::schedules::simulation::Random;
use crate::types::{DType, ReduceOp};

/// The parts of a float type.
#[derive(Clone, Copy)]
struct Format {
    dtype: DType,
    /// The bits of the fraction, with the one that is not stored.
    fraction_bits: u32,
    exponent_bits: u32,
}

const FORMATS: [Format; 4] = [
    Format { dtype: DType::Float16, fraction_bits: 11, exponent_bits: 5 },
    Format { dtype: DType::Bfloat16, fraction_bits: 8, exponent_bits: 8 },
    Format { dtype: DType::Float32, fraction_bits: 24, exponent_bits: 8 },
    Format { dtype: DType::Float64, fraction_bits: 53, exponent_bits: 11 },
];

/// The value of one element, in units of the type's smallest number.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Nan,
    Infinity { negative: bool },
    Finite { negative: bool, fraction: u64, place: u32 },
}

impl Format {
    fn stored_bits(self) -> u32 {
        self.fraction_bits - 1
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.stored_bits()
    }

    fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.stored_bits())
    }

    fn nan(self) -> u64 {
        self.infinity() | 1 << (self.stored_bits() - 1)
    }

    fn value(self, bits: u64) -> Value {
        let (negative, magnitude) = (bits & self.sign() != 0, bits & !self.sign());
        if magnitude >= self.infinity() {
            return if magnitude == self.infinity() { Value::Infinity { negative } } else { Value::Nan };
        }
        let (exponent, stored) =
            ((magnitude >> self.stored_bits()) as u32, magnitude & ((1 << self.stored_bits()) - 1));
        match exponent {
            0 => Value::Finite { negative, fraction: stored, place: 0 },
            _ => Value::Finite { negative, fraction: stored | 1 << self.stored_bits(), place: exponent - 1 },
        }
    }

    /// The bits of the exact sum, rounded once.
    fn sum(self, elements: &[u64]) -> u64 {
        let values: Vec<Value> = elements.iter().map(|bits| self.value(*bits)).collect();
        let has = |value| values.contains(&value);
        let infinities = [false, true].map(|negative| has(Value::Infinity { negative }));
        if has(Value::Nan) || infinities == [true, true] {
            return self.nan();
        }
        if infinities[0] || infinities[1] {
            return self.infinity() | if infinities[1] { self.sign() } else { 0 };
        }
        let mut sums = [Integer::default(), Integer::default()];
        for value in &values {
            let Value::Finite { negative, fraction, place } = *value else { unreachable!("looked for above") };
            (0..64).filter(|bit| fraction >> bit & 1 == 1).for_each(|bit| sums[usize::from(negative)].add(place + bit));
        }
        let [positive, negative] = sums;
        let sign = if negative.is_greater(&positive) { self.sign() } else { 0 };
        let (greater, lesser) = if sign != 0 { (negative, positive) } else { (positive, negative) };
        let difference = greater.less(&lesser);
        let Some(highest) = difference.highest() else {
            let only_minus_zeros = !elements.is_empty() && elements.iter().all(|bits| *bits == self.sign());
            return if only_minus_zeros { self.sign() } else { 0 };
        };
        let lowest = (highest + 1).saturating_sub(self.fraction_bits);
        let fraction = (lowest..=highest).rev().fold(0u64, |bits, at| bits << 1 | u64::from(difference.0[at as usize]));
        let half = lowest > 0 && difference.0[lowest as usize - 1];
        let more = lowest > 1 && difference.0[..lowest as usize - 1].contains(&true);
        let up = half && (more || fraction & 1 == 1);
        let magnitude = (u64::from(lowest) << self.stored_bits()).saturating_add(fraction + u64::from(up));
        sign | magnitude.min(self.infinity())
    }
}

/// A number of bits, the lowest first.
struct Integer(Vec<bool>);

impl Default for Integer {
    fn default() -> Integer {
        Integer(vec![false; 2300])
    }
}

impl Integer {
    fn add(&mut self, bit: u32) {
        let mut at = bit as usize;
        while self.0[at] {
            self.0[at] = false;
            at += 1;
        }
        self.0[at] = true;
    }

    fn is_greater(&self, other: &Integer) -> bool {
        self.0.iter().rev().gt(other.0.iter().rev())
    }

    fn less(&self, other: &Integer) -> Integer {
        let mut borrow = false;
        let bits = self.0.iter().zip(&other.0).map(|(one, other)| {
            let bit = one ^ other ^ borrow;
            borrow = (!one & (other | borrow)) | (other & borrow);
            bit
        });
        Integer(bits.collect())
    }

    fn highest(&self) -> Option<u32> {
        self.0.iter().rposition(|bit| *bit).map(|at| at as u32)
    }
}

/// How elements are drawn.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Elements of any bits: any exponent, infinities and NaN.
    AnyBits,
    /// Finite elements of any exponent.
    AnyExponent,
    /// Elements of similar size, as gradients are.
    Alike,
    /// Each element with its opposite, and some small ones.
    Opposites,
    /// Elements that are subnormal, or nearly so.
    Small,
    /// Elements as large as they can be.
    Large,
    /// Zeros of both signs, mostly negative.
    Zeros,
    /// One, and elements of half its last bit, a little less and a little more.
    Ties,
}

const KINDS: [Kind; 8] =
    [Kind::AnyBits, Kind::AnyExponent, Kind::Alike, Kind::Opposites, Kind::Small, Kind::Large, Kind::Zeros, Kind::Ties];

fn drawn(random: &mut Random, format: Format, kind: Kind, count: usize) -> Vec<u64> {
    let stored = format.stored_bits();
    let one = (format.infinity() >> (stored + 1)) << stored;
    let mut elements: Vec<u64> = Vec::new();
    for at in 0..count {
        let any = random.next();
        let sign = if random.below(2) == 0 { format.sign() } else { 0 };
        elements.push(match kind {
            Kind::AnyBits => any & (format.sign() | (format.sign() - 1)),
            Kind::AnyExponent => sign | (any % format.infinity()),
            Kind::Alike => sign | (one + any % (3 << stored)),
            Kind::Opposites if at % 2 == 1 && random.below(8) > 0 => elements[at - 1] ^ format.sign(),
            Kind::Opposites => sign | (any % format.infinity()),
            Kind::Small => sign | (any % (2 << stored)),
            Kind::Large => (sign * (any >> 63)) | (format.infinity() - 1 - any % (1 << stored)),
            Kind::Zeros if at == 0 && random.below(2) == 0 => 0,
            Kind::Zeros => format.sign(),
            Kind::Ties => match random.below(4) {
                0 => one + random.below(4) as u64,
                1 => (one.saturating_sub(u64::from(format.fraction_bits) << stored)) | sign,
                2 => one.saturating_sub(u64::from(2 * format.fraction_bits) << stored) | sign,
                _ => sign | random.below(2) as u64,
            },
        });
    }
    elements
}

fn bytes_of(format: Format, elements: impl Iterator<Item = u64>) -> Vec<u8> {
    elements.flat_map(|bits| bits.to_le_bytes().into_iter().take(format.dtype.size())).collect()
}

/// The kernel's sums of columns, each of which is a list of elements to add.
fn sums_of(format: Format, columns: &[Vec<u64>], vectors: usize, in_place: Option<usize>) -> Vec<u64> {
    let size = format.dtype.size();
    let mut rows: Vec<Vec<u8>> =
        (0..vectors).map(|row| bytes_of(format, columns.iter().map(|column| column[row]))).collect();
    let mut apart = vec![0xa5; columns.len() * size];
    let out = in_place.map_or(apart.as_mut_ptr(), |row| rows[row].as_mut_ptr());
    let starts: Vec<*const u8> = rows.iter().map(|row| row.as_ptr()).collect();
    let starts: Vec<*const u8> = match in_place {
        Some(row) => starts.iter().enumerate().map(|(at, start)| if at == row { out } else { *start }).collect(),
        None => starts,
    };
    // SAFETY: all rows hold as many elements; `out` is one of them, or apart.
    unsafe { sum_exact(format.dtype, vectors, &|at| starts[at], out, columns.len()) };
    let result = in_place.map_or(&apart, |row| &rows[row]);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    result.chunks(size).map(number).collect()
}

#[test]
fn sums_are_those_of_integers_that_are_long_enough() {
    let mut random = Random(31);
    for format in FORMATS {
        for kind in KINDS {
            for vectors in [0, 1, 2, 3, 4, 5, 7, 8, 13, 40] {
                let columns: Vec<Vec<u64>> = (0..9).map(|_| drawn(&mut random, format, kind, vectors)).collect();
                let expected: Vec<u64> = columns.iter().map(|column| format.sum(column)).collect();
                let sums = sums_of(format, &columns, vectors, None);
                assert_eq!(sums, expected, "{}, {kind:?}, {vectors} vectors: {columns:x?}", format.dtype);
                if vectors > 0 {
                    let row = random.below(vectors);
                    assert_eq!(sums_of(format, &columns, vectors, Some(row)), expected, "in place of row {row}");
                }
            }
        }
    }
}

#[test]
fn order_does_not_matter() {
    let mut random = Random(32);
    for format in FORMATS {
        for kind in KINDS {
            let mut columns: Vec<Vec<u64>> = (0..5).map(|_| drawn(&mut random, format, kind, 24)).collect();
            let first = sums_of(format, &columns, 24, None);
            for _ in 0..6 {
                for column in &mut columns {
                    (1..column.len()).for_each(|at| column.swap(at, random.below(at + 1)));
                }
                assert_eq!(sums_of(format, &columns, 24, None), first, "{}, {kind:?}", format.dtype);
            }
        }
    }
}

#[test]
fn few_of_many_that_need_the_slow_way_leave_the_others_right() {
    let mut random = Random(33);
    // In each chunk, and in every other one at most.
    for (format, apart) in FORMATS.into_iter().flat_map(|format| [(format, 97), (format, 600)]) {
        let kind = |at: usize| if at % apart == 5 { Kind::AnyBits } else { Kind::Alike };
        let columns: Vec<Vec<u64>> = (0..1100).map(|at| drawn(&mut random, format, kind(at), 6)).collect();
        let expected: Vec<u64> = columns.iter().map(|column| format.sum(column)).collect();
        assert_eq!(sums_of(format, &columns, 6, None), expected, "{}", format.dtype);
        assert_eq!(sums_of(format, &columns, 6, Some(2)), expected, "{} in place", format.dtype);
    }
}

#[test]
fn nothing_overflows_before_the_end() {
    let largest = |format: Format| format.infinity() - 1;
    for format in FORMATS {
        let minus = |bits: u64| bits | format.sign();
        let columns = vec![vec![largest(format), largest(format), minus(largest(format)), minus(largest(format)), 1]];
        assert_eq!(sums_of(format, &columns, 5, None), [1], "{}", format.dtype);
        let columns = vec![vec![largest(format), largest(format)]];
        assert_eq!(sums_of(format, &columns, 2, None), [format.infinity()], "{}", format.dtype);
    }
}

#[test]
fn more_elements_than_carries_wait_for_are_summed_exactly() {
    let format = FORMATS[2];
    // So many that the spread is beyond what a float64 holds, with a sum that is not.
    let column: Vec<u64> = (0..70_000).map(|at| [0x7f7f_ffff, 0xff7f_ffff, 0x0000_0001, 0x3f80_0000][at % 4]).collect();
    assert_eq!(sums_of(format, std::slice::from_ref(&column), column.len(), None), [format.sum(&column)]);
}

#[test]
fn the_callers_environment_changes_nothing() {
    // Subnormals are zero, and rounding is downward, to nothing, or upward; on this processor's own terms.
    #[cfg(target_arch = "x86_64")]
    let environments = [0x1f80 | 0x8040, 0x1f80 | 0x2000, 0x1f80 | 0x4000, 0x1f80 | 0xe040];
    #[cfg(target_arch = "aarch64")]
    let environments = [1 << 24, 1 << 22, 2 << 22, (3 << 22) | (1 << 24)];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let environments = [0];
    let mut random = Random(34);
    for format in FORMATS {
        for kind in [Kind::Small, Kind::Alike, Kind::AnyExponent] {
            let columns: Vec<Vec<u64>> = (0..300).map(|_| drawn(&mut random, format, kind, 2)).collect();
            let rows = [0, 1].map(|row| bytes_of(format, columns.iter().map(|column| column[row])));
            let all = || {
                let mut results = vec![bytes_of(format, sums_of(format, &columns, 2, None).into_iter())];
                for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
                    let mut mine = rows[0].clone();
                    reduce_slices(op, format.dtype, &mut mine, &rows[1], false);
                    results.push(mine);
                }
                let mut quotients = rows[0].clone();
                divide_slice(format.dtype, &mut quotients, 3);
                results.push(quotients);
                results
            };
            let expected = all();
            for control in environments {
                let before = environment::read();
                environment::write(control);
                let results = all();
                let after = environment::read();
                environment::write(before);
                assert!(results == expected, "{}, {kind:?}, environment {control:#x}", format.dtype);
                assert_eq!(after & !0x3f, control, "the caller has its own again");
            }
        }
    }
}
