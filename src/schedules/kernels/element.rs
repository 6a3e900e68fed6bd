//! The operations on one element, for each type. Branches are kept out, so that loops over them vectorize.

/// One element. `sum`, `prod`, `min` and `max` give the same bits whichever operand is first.
pub(super) trait Element: Copy {
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// The element divided by a number that is not zero.
    fn divide(self, by: u32) -> Self;
}

/// An operation on two elements. It is a type: a compiler need not inline a function that is passed, and loops with
/// calls in them do not vectorize.
pub(super) trait ElementOperation<T> {
    fn of(lower: T, higher: T) -> T;
}

macro_rules! operation {
    ($name:ident, $type:ty, |$one:ident, $other:ident| $result:expr $(, $element:ident)?) => {
        pub(super) struct $name;

        impl$(<$element: Element>)? ElementOperation<$type> for $name {
            #[inline(always)]
            fn of($one: $type, $other: $type) -> $type {
                $result
            }
        }
    };
}

operation!(Sum, T, |one, other| one.sum(other), T);
operation!(Prod, T, |one, other| one.prod(other), T);
operation!(Min, T, |one, other| one.min(other), T);
operation!(Max, T, |one, other| one.max(other), T);
operation!(And, u8, |one, other| one & other);
operation!(Or, u8, |one, other| one | other);
operation!(Xor, u8, |one, other| one ^ other);

macro_rules! integer {
    ($type:ty, $quotient:ty) => {
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                // The quotient is exact in a float that holds every dividend: what it lacks of the next whole number is
                // more than its rounding. A quotient is no larger than its dividend, so it fits.
                (self as $quotient / by as $quotient) as $type
            }
        }
    };
}

integer!(i8, f32);
integer!(i16, f32);
integer!(i32, f64);
integer!(i64, i64);
integer!(u8, f32);
integer!(u16, f32);
integer!(u32, f64);
integer!(u64, u64);

/// A value, but any NaN made the canonical one; in bits, for a compiler may take one NaN for another.
macro_rules! canonical {
    ($value:expr, $canonical:expr) => {{
        let value = $value;
        Self::from_bits(if value.is_nan() { $canonical } else { value.to_bits() })
    }};
}

/// The canonical NaN if one of two operands is NaN, else a value.
macro_rules! nan_of {
    ($one:expr, $other:expr, $value:expr, $canonical:expr) => {
        Self::from_bits(if $one.is_nan() | $other.is_nan() { $canonical } else { $value.to_bits() })
    };
}

macro_rules! float {
    ($type:ty, $canonical:expr) => {
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                canonical!(self + other, $canonical)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                canonical!(self * other, $canonical)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                // Equal but different bits are the two zeros: -0 has a bit more.
                let zero_or_equal = <$type>::from_bits(self.to_bits() | other.to_bits());
                let least = if other < self { other } else { zero_or_equal };
                let least = if self < other { self } else { least };
                nan_of!(self, other, least, $canonical)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let zero_or_equal = <$type>::from_bits(self.to_bits() & other.to_bits());
                let most = if other > self { other } else { zero_or_equal };
                let most = if self > other { self } else { most };
                nan_of!(self, other, most, $canonical)
            }
            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                canonical!(self / by as $type, $canonical)
            }
        }
    };
}

float!(f32, 0x7fc0_0000);
float!(f64, 0x7ff8_0000_0000_0000);
