//! A number that holds the sum of any float64s exactly: the slow way to sums that no float64 holds.

/// The value of the lowest bit is 2^-1074, that of the smallest float64.
const LOWEST: i64 = -1074;
/// How many bits a digit has. It is kept in 64, so that carries can wait.
const DIGIT_BITS: u32 = 32;
/// How many digits there are: enough for the largest float64, and for 2^48 times as much.
const DIGITS: usize = 68;
/// So many numbers can be added before carries must be passed on: each adds less than 2^32 to a digit.
const ADDED_MAX: u32 = 1 << 30;
/// A float64's fraction, with the bit that is not stored.
const FRACTION_BITS: u32 = 53;

/// How a sum becomes a float64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// It is rounded to the nearest, ties to even.
    Nearest,
    /// If any lost bit is 1, the lowest bit that is kept becomes 1. A later rounding to fewer bits then gives the same result as a
    /// single rounding.
    Odd,
}

/// The sum so far.
pub(super) struct FixedPoint {
    digits: [i64; DIGITS],
    added: u32,
}

impl FixedPoint {
    pub fn new() -> FixedPoint {
        FixedPoint { digits: [0; DIGITS], added: 0 }
    }

    /// Adds a finite number.
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as u32;
        let stored = bits & ((1 << 52) - 1);
        let (fraction, place) = if exponent == 0 { (stored, 0) } else { (stored | 1 << 52, exponent - 1) };
        let (first, shift) = ((place / DIGIT_BITS) as usize, place % DIGIT_BITS);
        let shifted = u128::from(fraction) << shift;
        for (at, digit) in self.digits[first..first + 3].iter_mut().enumerate() {
            let part = (shifted >> (at as u32 * DIGIT_BITS)) as u32;
            *digit += if value.is_sign_negative() { -i64::from(part) } else { i64::from(part) };
        }
        self.added += 1;
        if self.added == ADDED_MAX {
            self.carry();
        }
    }

    /// Passes carries on, so that every digit but the highest has its 32 bits.
    fn carry(&mut self) {
        let mut carried = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let sum = *digit + carried;
            (*digit, carried) = (sum & 0xffff_ffff, sum >> DIGIT_BITS);
        }
        self.digits[DIGITS - 1] += carried;
        self.added = 1;
    }

    /// The sum as a float64. The sum of nothing is +0, and so is any other sum that is zero.
    pub fn rounded(mut self, how: Rounding) -> f64 {
        self.carry();
        let is_negative = self.digits[DIGITS - 1] < 0;
        if is_negative {
            self.digits.iter_mut().for_each(|digit| *digit = -*digit);
            self.carry();
        }
        let Some(highest) = self.digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        // The window has 128 bits, from two digits below the highest on. At least 65 are below its highest 1, unless there
        // are not so many digits.
        let base = highest.saturating_sub(2);
        let digit = |at: usize| self.digits.get(at).map_or(0, |digit| *digit as u128);
        let window = digit(base) | digit(base + 1) << DIGIT_BITS | digit(base + 2) << (2 * DIGIT_BITS);
        let length = u128::BITS - window.leading_zeros();
        let dropped = length.saturating_sub(FRACTION_BITS);
        let fraction = (window >> dropped) as u64;
        let rest = window & ((1 << dropped) - 1);
        let is_more = self.digits[..base].iter().any(|digit| *digit != 0);
        let up = match how {
            Rounding::Odd => (rest != 0 || is_more) && fraction & 1 == 0,
            Rounding::Nearest if dropped == 0 => false,
            Rounding::Nearest => {
                let half = 1u128 << (dropped - 1);
                rest > half || (rest == half && (is_more || fraction & 1 == 1))
            }
        };
        // A number without a fraction of full length is a subnormal one; one that grows to a bit more has the next exponent.
        let place = base as u64 * u64::from(DIGIT_BITS) + u64::from(dropped);
        let magnitude = (place << 52) + fraction + u64::from(up);
        let magnitude = f64::from_bits(magnitude.min(f64::INFINITY.to_bits()));
        if is_negative {
            -magnitude
        } else {
            magnitude
        }
    }
}

const _: () =
    assert!(DIGITS as i64 * DIGIT_BITS as i64 + LOWEST >= 1024 + 48, "the largest float64, and 2^48 times as much");
