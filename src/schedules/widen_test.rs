//! Averages of narrow types: computed in numbers in which nothing overflows, and compared with what every algorithm gives.

use super::simulation::{run, InPlace, Random};
use super::simulation_test::{algorithms, call, IN_PLACE};
use super::widen::sum_type;
use super::{kernels, Conversion, Layout, Parts, Shape};
use crate::types::{Call, CallKind, DType, ReduceOp};

pub(super) fn is_narrow(dtype: DType) -> bool {
    sum_type(dtype, 2).is_some()
}

fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let (unsigned, unused) = (u64::from_le_bytes(word), 64 - 8 * bytes.len());
    match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 => i128::from(((unsigned << unused) as i64) >> unused),
        _ => i128::from(unsigned),
    }
}

/// One half as a float64, and back, by way of a float32.
fn wide(dtype: DType, bytes: &[u8]) -> f64 {
    let mut float = [0; 4];
    kernels::convert_slice(Conversion { from: dtype, to: DType::Float32, exponent: 0 }, bytes, &mut float);
    f64::from(f32::from_le_bytes(float))
}

fn narrow(dtype: DType, value: f64) -> [u8; 2] {
    let mut half = [0; 2];
    let how = Conversion { from: DType::Float32, to: dtype, exponent: 0 };
    kernels::convert_slice(how, &(value as f32).to_le_bytes(), &mut half);
    half
}

/// The average of elements of a narrow type, computed in numbers in which nothing overflows.
pub(super) fn averaged(dtype: DType, inputs: &[&[u8]]) -> Vec<u8> {
    let (size, ranks) = (dtype.size(), inputs.len());
    let elements = |at: usize| inputs.iter().map(move |input| &input[at..at + size]);
    let average = |at: usize| -> Vec<u8> {
        match dtype.is_integer() {
            true => {
                let sum: i128 = elements(at).map(|bytes| integer(dtype, bytes)).sum();
                (sum / ranks as i128).to_le_bytes()[..size].to_vec()
            }
            false => {
                let sum: f64 = elements(at).map(|bytes| wide(dtype, bytes)).sum();
                narrow(dtype, sum / ranks as f64).to_vec()
            }
        }
    };
    (0..inputs[0].len()).step_by(size).flat_map(average).collect()
}

/// The largest finite elements of a type, and those next to them.
fn large(random: &mut Random, dtype: DType, count: usize) -> Vec<u8> {
    let element = |random: &mut Random| match dtype {
        DType::Float16 => [0x7bffu16, 0x7b53, 0x7bff, 0xfbff][random.below(4)].to_le_bytes().to_vec(),
        DType::Bfloat16 => [0x7f7fu16, 0x7f61, 0x7f7f, 0xff7f][random.below(4)].to_le_bytes().to_vec(),
        _ => {
            let (bits, near) = (8 * dtype.size() as u32, random.below(3) as u64);
            let most = u64::MAX >> (64 - bits);
            let values = [most - near, most / 2 - near, most / 2 + 1 + near, near];
            values[random.below(4)].to_le_bytes()[..dtype.size()].to_vec()
        }
    };
    (0..count).flat_map(|_| element(random)).collect()
}

#[test]
fn no_sum_overflows_in_any_algorithm() {
    let mut random = Random(31);
    for size in [2, 3, 4, 5, 7, 8, 16] {
        for dtype in DType::ALL.into_iter().filter(|dtype| is_narrow(*dtype) && dtype.is_integer()) {
            let call = Call { op: Some(ReduceOp::Avg), ..call(CallKind::Allreduce, dtype, 41) };
            let inputs: Vec<Vec<u8>> = (0..size).map(|_| large(&mut random, dtype, 41)).collect();
            let expected = averaged(dtype, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for algorithm in algorithms(CallKind::Allreduce, size) {
                for in_place in IN_PLACE {
                    let outputs = run(algorithm, call, &inputs, in_place, random.next()).outputs;
                    assert!(outputs.iter().all(|output| *output == expected), "{algorithm:?}, {call}, {size} ranks");
                }
            }
        }
    }
}

#[test]
fn an_average_of_halves_is_finite_and_as_near_as_a_float32_sum_makes_it() {
    let mut random = Random(32);
    for size in [2, 3, 4, 5, 7, 8, 16, 33] {
        for dtype in [DType::Float16, DType::Bfloat16] {
            for equal in [true, false] {
                let call = Call { op: Some(ReduceOp::Avg), ..call(CallKind::Allreduce, dtype, 41) };
                let first = large(&mut random, dtype, 41);
                let input = |random: &mut Random| if equal { first.clone() } else { large(random, dtype, 41) };
                let inputs: Vec<Vec<u8>> = (0..size).map(|_| input(&mut random)).collect();
                let expected = averaged(dtype, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
                for algorithm in algorithms(CallKind::Allreduce, size) {
                    let outputs = run(algorithm, call, &inputs, InPlace::OddRanks, random.next()).outputs;
                    for (output, expected) in outputs[0].chunks(2).zip(expected.chunks(2)) {
                        let (found, right) = (wide(dtype, output), wide(dtype, expected));
                        let largest = wide(dtype, if dtype == DType::Float16 { &[0xff, 0x7b] } else { &[0x7f, 0x7f] });
                        let unit = largest * if dtype == DType::Float16 { 2f64.powi(-11) } else { 2f64.powi(-8) };
                        let allowed = if equal { 0.0 } else { unit };
                        assert!(
                            (found - right).abs() <= allowed,
                            "{algorithm:?}, {call}, {size}: {found}, not {right}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_issue_tells_of() {
    let average = |dtype, one: &[u8], other: &[u8]| {
        let call = Call { op: Some(ReduceOp::Avg), ..call(CallKind::Allreduce, dtype, 1) };
        let inputs = [one.to_vec(), other.to_vec()];
        let algorithm = algorithms(CallKind::Allreduce, 2).next().expect("there is one");
        run(algorithm, call, &inputs, InPlace::Nobody, 1).outputs[0].clone()
    };
    assert_eq!(average(DType::Int8, &[100], &[100]), [100]);
    assert_eq!(average(DType::Int8, &[0x80], &[0x81]), [0x81], "-127.5 toward zero");
    assert_eq!(average(DType::Uint32, &[0xff; 4], &[0xff; 4]), [0xff; 4]);
    let sixty_thousand = 0x7b53u16.to_le_bytes();
    assert_eq!(average(DType::Float16, &sixty_thousand, &sixty_thousand), sixty_thousand);
    let largest = 0x7f7fu16.to_le_bytes();
    assert_eq!(average(DType::Bfloat16, &largest, &largest), largest);
    let least = 0x0001u16.to_le_bytes();
    assert_eq!(average(DType::Bfloat16, &least, &least), least, "nothing is lost at the small end");
}

#[test]
fn the_least_bfloat16_survives_every_scale() {
    for exponent in 1..=16 {
        let mut float = [0; 4];
        for bits in [0x0001u16, 0x8001, 0x007f, 0x0080, 0x3f80, 0x7f7f] {
            let half = bits.to_le_bytes();
            let how = Conversion { from: DType::Bfloat16, to: DType::Float32, exponent: -exponent };
            kernels::convert_slice(how, &half, &mut float);
            let mut back = [0; 2];
            let how = Conversion { from: DType::Float32, to: DType::Bfloat16, exponent };
            kernels::convert_slice(how, &float, &mut back);
            assert_eq!(back, half, "{bits:#x} by 2^{exponent}");
        }
    }
}

#[test]
fn sums_fit_for_every_number_of_ranks() {
    for (dtype, largest) in [(DType::Int8, 1u128 << 7), (DType::Int16, 1 << 15), (DType::Int32, 1 << 31)] {
        for size in [2, 256, 257, 65_536, 65_537, 1 << 20] {
            let bits = 8 * sum_type(dtype, size).expect("it is narrow").size();
            assert!(largest * u128::from(size) <= 1 << (bits - 1), "{size} times {dtype}");
        }
    }
    for (dtype, most) in [(DType::Uint8, 255u128), (DType::Uint16, 65_535), (DType::Uint32, (1 << 32) - 1)] {
        for size in [2, 256, 257, 65_536, 65_537, 1 << 20] {
            let bits = 8 * sum_type(dtype, size).expect("it is narrow").size();
            assert!(most * u128::from(size) < 1 << bits, "{size} times {dtype}");
        }
    }
}

#[test]
fn only_averages_of_narrow_types_are_carried_out_in_another_type() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            for size in [1, 2, 9] {
                let call = Call { op: Some(op), ..call(CallKind::Allreduce, dtype, 7) };
                let shape = Shape { rank: 0, size, call, in_place: false, layout: None };
                let is_other = op == ReduceOp::Avg && is_narrow(dtype) && size > 1;
                assert_eq!(shape.summed() != call, is_other, "{call} on {size} ranks");
            }
        }
    }
}

#[test]
fn a_count_that_only_fits_as_narrow_elements_is_refused() {
    let shape = |op, count| {
        let call = Call { op: Some(op), ..call(CallKind::Allreduce, DType::Int8, count) };
        Shape { rank: 0, size: 2, call, in_place: false, layout: None }.check()
    };
    assert!(shape(ReduceOp::Sum, (1 << 47) - 1).is_ok());
    assert!(shape(ReduceOp::Avg, (1 << 46) - 1).is_ok());
    assert!(shape(ReduceOp::Avg, 1 << 46).is_err());
    let (counts, displs) = (vec![1 << 45, 1 << 45], vec![0, 1 << 45]);
    let layout = Layout { own: 1 << 45, input: Parts { counts, displs }, output: Parts::default() };
    let call = Call { op: Some(ReduceOp::Avg), ..call(CallKind::ReduceScatterv, DType::Int8, 1 << 46) };
    assert!(Shape { rank: 0, size: 2, call, in_place: false, layout: Some(&layout) }.check().is_err());
}
