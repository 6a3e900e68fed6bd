//! Kernels against answers computed another way, on every type and operation.

use super::element::Element;
use super::half::{Bfloat16, Float16};
use super::*;

/// An operation, and the plain function that it should agree with.
type Plain<T> = (ReduceOp, fn(T, T) -> T);

const NAN: u16 = 0x7e00;

/// The value of a float16, from its definition.
fn float16_value(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    sign * match exponent {
        31 if fraction != 0.0 => f64::NAN,
        31 => f64::INFINITY,
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

#[test]
fn every_float16_is_converted_exactly_and_back() {
    for bits in 0..=u16::MAX {
        let (wide, value) = (Float16(bits).to_f32(), float16_value(bits));
        if value.is_nan() {
            assert!(wide.is_nan());
            assert_eq!(Float16::from_f32(wide).0, NAN);
            continue;
        }
        assert!(f64::from(wide) == value && wide.is_sign_negative() == value.is_sign_negative(), "{bits:#x}");
        assert_eq!(Float16::from_f32(wide).0, bits);
    }
}

#[test]
fn float16_is_rounded_to_the_nearest_and_ties_to_even() {
    for bits in 0..0x7bffu16 {
        let (low, high) = (float16_value(bits), float16_value(bits + 1));
        let middle = ((low + high) / 2.0) as f32;
        let even = bits + (bits & 1);
        assert_eq!(Float16::from_f32(middle).0, even, "halfway above {bits:#x}");
        assert_eq!(Float16::from_f32(middle.next_down_by_one()).0, bits);
        assert_eq!(Float16::from_f32(-middle.next_up_by_one()).0, 0x8000 | (bits + 1));
    }
    let ends = [(65519.996, 0x7bff), (65520.0, 0x7c00), (f32::MAX, 0x7c00), (f32::INFINITY, 0x7c00), (1e-30, 0)];
    for (value, bits) in ends {
        assert_eq!(Float16::from_f32(value).0, bits, "{value}");
        assert_eq!(Float16::from_f32(-value).0, 0x8000 | bits, "-{value}");
    }
}

/// The neighbours of a positive float32.
trait Neighbours {
    fn next_up_by_one(self) -> f32;
    fn next_down_by_one(self) -> f32;
}

impl Neighbours for f32 {
    fn next_up_by_one(self) -> f32 {
        f32::from_bits(self.to_bits() + 1)
    }
    fn next_down_by_one(self) -> f32 {
        f32::from_bits(self.to_bits() - 1)
    }
}

#[test]
fn every_bfloat16_is_converted_exactly_and_rounded_to_even() {
    for bits in 0..=u16::MAX {
        let wide = Bfloat16(bits).to_f32();
        if wide.is_nan() {
            assert_eq!(Bfloat16::from_f32(wide).0, 0x7fc0);
            continue;
        }
        assert_eq!(Bfloat16::from_f32(wide).0, bits);
        if wide.is_finite() {
            let middle = f32::from_bits(wide.to_bits() | 0x8000);
            assert_eq!(Bfloat16::from_f32(middle).0, bits + (bits & 1));
            assert_eq!(Bfloat16::from_f32(middle.next_up_by_one()).0, bits + 1);
            assert_eq!(Bfloat16::from_f32(middle.next_down_by_one()).0, bits);
        }
    }
    assert_eq!(Bfloat16::from_f32(f32::from_bits(u32::MAX)).0, 0x7fc0);
}

/// Runs a kernel over elements in all four ways of laying out its operands, unaligned, and demands one answer.
fn every_way(op: ReduceOp, dtype: DType, lower: &[u8], higher: &[u8]) -> Vec<u8> {
    let unaligned = |bytes: &[u8]| [&[0xa5], bytes].concat();
    let (low, high, count) = (unaligned(lower), unaligned(higher), lower.len() / dtype.size());
    let mut answers = Vec::new();
    for way in 0..3 {
        let mut out = unaligned(if way == 2 { higher } else { lower });
        let end = out.len();
        out.push(0xa5);
        let to = out.as_mut_ptr().wrapping_add(1);
        let first = if way == 1 { to.cast_const() } else { low.as_ptr().wrapping_add(1) };
        let second = if way == 2 { to.cast_const() } else { high.as_ptr().wrapping_add(1) };
        // SAFETY: each vector holds `count` elements after its first byte; `out` is an operand or apart from both.
        unsafe { reduce(op, dtype, first, second, to, count) };
        assert!(out[0] == 0xa5 && out[end] == 0xa5, "{op} of {dtype} wrote beyond its bounds");
        answers.push(out[1..end].to_vec());
    }
    let mut exchanged = higher.to_vec();
    reduce_slices(op, dtype, &mut exchanged, lower, false);
    answers.push(exchanged);
    let mut portable = lower.to_vec();
    let (mine, other) = (portable.as_mut_ptr(), higher.as_ptr());
    // SAFETY: both hold `count` elements; `out` is `lower`.
    unsafe { reduce_any(op, dtype, mine, other, mine, count) };
    answers.push(portable);
    let first = answers.remove(0);
    assert!(answers.iter().all(|answer| *answer == first), "{op} of {dtype} depends on where its operands lie");
    first
}

/// Elements that between them have every interesting neighbour: bit patterns counted through, and random ones.
fn patterns(dtype: DType, seed: u64) -> Vec<u8> {
    let special: [u64; 12] = [
        0,
        1,
        u64::MAX,
        1 << 63,
        0x8000_0000_8000_8080,
        0x7f80_0000_7f80_7c00,
        0x7ff0_0000_0000_0000,
        0xfff8_0000_ffc0_fe01,
        0x3ff0_0000_3f80_3c00,
        0x7fff_ffff_7fff_7f7f,
        0xff80_0000_ff80_fc00,
        0x7ff0_0000_7f80_0001,
    ];
    let mut state = seed;
    let mut bytes = Vec::new();
    for at in 0..301usize {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let turn = if seed.is_multiple_of(2) { at / special.len() } else { at };
        let value = if at < 144 { special[turn % special.len()] } else { state ^ (state >> 29) };
        bytes.extend(&value.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

/// Demands that a kernel agrees with a plain function of two elements.
macro_rules! agrees {
    ($type:ty, $dtype:expr, $sum:expr, $prod:expr, $min:expr, $max:expr) => {{
        let (lower, higher) = (patterns($dtype, 2), patterns($dtype, 3));
        let wide = std::mem::size_of::<$type>();
        let elements = |bytes: &[u8]| -> Vec<$type> {
            bytes.chunks(wide).map(|bytes| <$type>::from_ne_bytes(bytes.try_into().expect("a whole one"))).collect()
        };
        let (low, high) = (elements(&lower), elements(&higher));
        let plain: [Plain<$type>; 4] =
            [(ReduceOp::Sum, $sum), (ReduceOp::Prod, $prod), (ReduceOp::Min, $min), (ReduceOp::Max, $max)];
        for (op, plain) in plain {
            let answer = elements(&every_way(op, $dtype, &lower, &higher));
            for at in 0..low.len() {
                let expected = plain(low[at], high[at]);
                let same = answer[at].to_ne_bytes() == expected.to_ne_bytes();
                assert!(same, "{op}({:?}, {:?}) is {:?}, not {expected:?}", low[at], high[at], answer[at]);
            }
        }
        assert_eq!(
            every_way(ReduceOp::Avg, $dtype, &lower, &higher),
            every_way(ReduceOp::Sum, $dtype, &lower, &higher)
        );
    }};
}

macro_rules! integers_agree {
    ($type:ty, $dtype:expr) => {
        agrees!($type, $dtype, <$type>::wrapping_add, <$type>::wrapping_mul, Ord::min, Ord::max);
        let (lower, higher) = (patterns($dtype, 2), patterns($dtype, 3));
        let plain: [Plain<u8>; 3] =
            [(ReduceOp::And, |a, b| a & b), (ReduceOp::Or, |a, b| a | b), (ReduceOp::Xor, |a, b| a ^ b)];
        for (op, plain) in plain {
            let expected: Vec<u8> = lower.iter().zip(&higher).map(|(a, b)| plain(*a, *b)).collect();
            assert_eq!(every_way(op, $dtype, &lower, &higher), expected, "{op} of {}", $dtype);
        }
    };
}

macro_rules! floats_agree {
    ($type:ty, $dtype:expr, $nan:expr) => {{
        fn quiet(value: $type) -> $type {
            if value.is_nan() {
                <$type>::from_bits($nan)
            } else {
                value
            }
        }
        fn pick(a: $type, b: $type, least: bool) -> $type {
            if a.is_nan() || b.is_nan() {
                return <$type>::from_bits($nan);
            }
            let order = a.total_cmp(&b);
            if order.is_lt() == least {
                a
            } else {
                b
            }
        }
        agrees!($type, $dtype, |a, b| quiet(a + b), |a, b| quiet(a * b), |a, b| pick(a, b, true), |a, b| pick(
            a, b, false
        ))
    }};
}

#[test]
fn every_type_agrees_with_plain_arithmetic() {
    integers_agree!(i8, DType::Int8);
    integers_agree!(i16, DType::Int16);
    integers_agree!(i32, DType::Int32);
    integers_agree!(i64, DType::Int64);
    integers_agree!(u8, DType::Uint8);
    integers_agree!(u16, DType::Uint16);
    integers_agree!(u32, DType::Uint32);
    integers_agree!(u64, DType::Uint64);
    floats_agree!(f32, DType::Float32, 0x7fc0_0000);
    floats_agree!(f64, DType::Float64, 0x7ff8_0000_0000_0000);
}

#[test]
fn halves_are_computed_in_float32_and_rounded_once() {
    let plain: [Plain<f32>; 4] = [
        (ReduceOp::Sum, |a, b| a + b),
        (ReduceOp::Prod, |a, b| a * b),
        (ReduceOp::Min, Element::min),
        (ReduceOp::Max, Element::max),
    ];
    for (op, plain) in plain {
        for dtype in [DType::Float16, DType::Bfloat16] {
            let (lower, higher) = (patterns(dtype, 2), patterns(dtype, 3));
            let answer = every_way(op, dtype, &lower, &higher);
            let at = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[2 * at], bytes[2 * at + 1]]);
            for index in 0..lower.len() / 2 {
                let (low, high) = (at(&lower, index), at(&higher, index));
                let expected = match dtype {
                    DType::Float16 => Float16::from_f32(plain(Float16(low).to_f32(), Float16(high).to_f32())).0,
                    _ => Bfloat16::from_f32(plain(Bfloat16(low).to_f32(), Bfloat16(high).to_f32())).0,
                };
                assert_eq!(at(&answer, index), expected, "{op} of {dtype}s {low:#x} and {high:#x}");
            }
        }
    }
}

#[test]
fn division_is_by_type() {
    let divided = |dtype, bytes: &[u8], by| {
        let mut bytes = bytes.to_vec();
        divide_slice(dtype, &mut bytes, by);
        bytes
    };
    assert_eq!(divided(DType::Int8, &[0x80, 0xff, 7, 0xf9], 2), [0xc0, 0, 3, 0xfd]);
    assert_eq!(divided(DType::Uint8, &[255, 200], 300), [0, 0]);
    assert_eq!(divided(DType::Int64, &i64::MIN.to_ne_bytes(), 1), i64::MIN.to_ne_bytes());
    assert_eq!(divided(DType::Uint64, &u64::MAX.to_ne_bytes(), 2), (u64::MAX / 2).to_ne_bytes());
    assert_eq!(divided(DType::Int32, &(-7i32).to_ne_bytes(), 2), (-3i32).to_ne_bytes());
    for by in [1, 2, 3, 7, 255, 256, 65_537, (1 << 24) + 1, u32::MAX] {
        for value in 0..=255u8 {
            let signed = (i64::from(value as i8) / i64::from(by)) as i8;
            assert_eq!(divided(DType::Int8, &[value], by), [signed as u8], "{value} by {by}");
            assert_eq!(divided(DType::Uint8, &[value], by), [(u32::from(value) / by) as u8], "{value} by {by}");
        }
        for value in
            [0, 1, 2, by - 1, by, by.wrapping_mul(3), by.wrapping_mul(3).wrapping_sub(1), u32::MAX - 1, u32::MAX]
        {
            assert_eq!(divided(DType::Uint32, &value.to_ne_bytes(), by), (value / by).to_ne_bytes(), "{value} by {by}");
            let signed = (i64::from(value as i32) / i64::from(by)) as i32;
            assert_eq!(divided(DType::Int32, &value.to_ne_bytes(), by), signed.to_ne_bytes(), "{value} by {by}");
            let short = (i64::from(value as i16) / i64::from(by)) as i16;
            assert_eq!(
                divided(DType::Int16, &(value as i16).to_ne_bytes(), by),
                short.to_ne_bytes(),
                "{value} by {by}"
            );
        }
    }
    assert_eq!(divided(DType::Float32, &1f32.to_ne_bytes(), 3), (1f32 / 3.0).to_ne_bytes());
    assert_eq!(divided(DType::Float64, &1f64.to_ne_bytes(), 3), (1f64 / 3.0).to_ne_bytes());
    assert_eq!(divided(DType::Float16, &0x4200u16.to_ne_bytes(), 2), 0x3e00u16.to_ne_bytes());
    assert_eq!(divided(DType::Bfloat16, &0x4040u16.to_ne_bytes(), 2), 0x3fc0u16.to_ne_bytes());
}

#[test]
fn nothing_is_nothing() {
    for dtype in DType::ALL {
        let nowhere = std::ptr::null_mut();
        // SAFETY: no element is reached.
        unsafe {
            reduce(ReduceOp::Sum, dtype, nowhere, nowhere, nowhere, 0);
            divide(dtype, nowhere, 0, 1);
        }
    }
}

#[test]
fn every_float16_gives_the_same_bits_with_and_without_the_processors_conversions() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    for other in [0x0000u16, 0x8000, 0x0001, 0x0201, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0xfe00] {
        let other: Vec<u8> = (0..=u16::MAX).flat_map(|_| other.to_ne_bytes()).collect();
        for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(DType::Float16) && !op.is_exact()) {
            every_way(op, DType::Float16, &all, &other);
        }
    }
}
