//! Random expressions against a naive interpreter that holds whole tensors in memory and knows nothing of boxes.

use super::read::{Reader, Source};
use super::*;
use crate::selection::Selection;
use crate::step::axis::Axis;
use crate::tiles::Tiles;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{ByteRange, Catalog, Checkpoint, EntryId, Extent, KeyPath, Source as ByteSource};
use weightlift_kernels::cast::Overflow;

/// A checkpoint whose tensors are f32 in one decoded source.
struct Memory {
    catalog: Catalog,
    bytes: Vec<u8>,
}

impl Memory {
    fn new(tensors: &[(&[u64], Vec<f32>)]) -> Memory {
        let mut catalog = Catalog::new("memory", "memory");
        let bytes: Vec<u8> = tensors.iter().flat_map(|(_, v)| v.iter().flat_map(|x| x.to_le_bytes())).collect();
        let label = "memory".to_owned();
        let source = catalog.add_source(ByteSource::Decoded { label, len: bytes.len() as u64 });
        let mut at = 0;
        for (index, (dims, values)) in tensors.iter().enumerate() {
            let shape = Shape::new(*dims).unwrap();
            let range = ByteRange::new(at, values.len() as u64 * 4).unwrap();
            at = range.end();
            let extent = Extent::contiguous(source, range, DType::F32, &shape).unwrap();
            let path = KeyPath::flat(format!("t{index}"));
            catalog.entries.push(Entry::new(path, DType::F32, shape, vec![extent]).unwrap());
        }
        Memory { catalog, bytes }
    }
}

impl Checkpoint for Memory {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn decode(&self, _: weightlift_core::SourceId) -> Result<Box<dyn std::io::Read + Send + '_>> {
        Ok(Box::new(self.bytes.as_slice()))
    }
}

/// A whole tensor.
#[derive(Debug, Clone, PartialEq)]
struct Dense {
    dims: Vec<u64>,
    values: Vec<f32>,
}

impl Dense {
    fn index(&self, index: &[u64]) -> f32 {
        let mut at = 0;
        for (axis, &position) in index.iter().enumerate() {
            assert!(position < self.dims[axis]);
            at = at * self.dims[axis] + position;
        }
        self.values[at as usize]
    }

    /// A tensor whose element at each index is what `work` says.
    fn make(dims: Vec<u64>, work: impl Fn(&[u64]) -> f32) -> Dense {
        let count: u64 = dims.iter().product();
        let element = |flat: u64| {
            let (mut index, mut rest) = (vec![0; dims.len()], flat);
            for axis in (0..dims.len()).rev() {
                index[axis] = rest % dims[axis];
                rest /= dims[axis];
            }
            work(&index)
        };
        Dense { values: (0..count).map(element).collect(), dims }
    }
}

/// One step of a random expression; numbers are brought into range where they are used.
#[derive(Debug, Clone)]
enum Op {
    Permute(Vec<usize>),
    Reshape(usize),
    Select(Vec<(u64, u64, i64)>),
    Concat(usize),
    Stack(usize),
    Rows(Vec<(u64, u64)>),
    Patch(Vec<(u64, u64, i64)>, f32),
    Resize(u64, u8),
    Sum(f64, f64),
    /// Two of it joined within blocks of an axis.
    Fuse(usize, usize),
    /// A part of each block of an axis.
    Cut(usize, usize, u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let run = || (0..9u64, 0..9u64, prop_oneof![Just(1i64), Just(1), Just(2), Just(3), Just(-1), Just(-2)]);
    prop_oneof![
        Just(vec![0, 1, 2, 3, 4]).prop_shuffle().prop_map(Op::Permute),
        (0..8usize).prop_map(Op::Reshape),
        prop::collection::vec(run(), 5).prop_map(Op::Select),
        (0..5usize).prop_map(Op::Concat),
        (0..5usize).prop_map(Op::Stack),
        prop::collection::vec((0..20u64, 0..20u64), 0..6).prop_map(Op::Rows),
        (prop::collection::vec(run(), 5), -9.0..9.0f32).prop_map(|(runs, value)| Op::Patch(runs, value)),
        (1..14u64, 0..4u8).prop_map(|(rows, fill)| Op::Resize(rows, fill)),
        (-2.0..2.0f64, -2.0..2.0f64).prop_map(|(a, b)| Op::Sum(a, b)),
        (0..5usize, 0..4usize).prop_map(|(axis, blocks)| Op::Fuse(axis, blocks)),
        (0..5usize, 0..4usize, 0..9u64, 0..9u64)
            .prop_map(|(axis, blocks, start, len)| Op::Cut(axis, blocks, start, len)),
    ]
}

/// A slice in Python's words that selects at least one position of every axis, and the positions.
fn slice_of(dims: &[u64], runs: &[(u64, u64, i64)]) -> (String, Vec<Vec<u64>>) {
    let mut words = Vec::new();
    let mut positions = Vec::new();
    for (axis, &dim) in dims.iter().enumerate() {
        let (a, b, step) = runs[axis % runs.len()];
        let (low, high) = ((a % dim).min(b % dim), (a % dim).max(b % dim));
        if step > 0 {
            words.push(format!("{low}:{}:{step}", high + 1));
            positions.push((low..=high).step_by(step as usize).collect());
        } else {
            let stop = if low == 0 { String::new() } else { (low - 1).to_string() };
            words.push(format!("{high}:{stop}:{step}"));
            positions.push((low..=high).rev().step_by(step.unsigned_abs() as usize).collect());
        }
    }
    (words.join(","), positions)
}

/// The same expression both ways; `None` where the step does not go with the shape.
fn apply(op: &Op, value: &Value, dense: &Dense) -> Option<(Value, Dense)> {
    let rank = dense.dims.len();
    match op {
        Op::Permute(order) => {
            let axes: Vec<usize> = order.iter().copied().filter(|&axis| axis < rank).collect();
            let dims = axes.iter().map(|&axis| dense.dims[axis]).collect();
            let made = Dense::make(dims, |index| {
                let mut from = vec![0; rank];
                axes.iter().zip(index).for_each(|(&axis, &at)| from[axis] = at);
                dense.index(&from)
            });
            Some((value.permute(Some(&axes)).unwrap(), made))
        }
        Op::Reshape(seed) => {
            let count = dense.values.len() as u64;
            let divisors: Vec<u64> = (1..=count).filter(|d| count.is_multiple_of(*d)).collect();
            let first = divisors[seed % divisors.len()];
            let dims = vec![first, count / first];
            let asked = [first as i64, -1];
            Some((value.reshape(&asked).unwrap(), Dense { dims, values: dense.values.clone() }))
        }
        Op::Select(runs) => {
            let (slice, positions) = slice_of(&dense.dims, runs);
            let selection = Selection::parse(&slice, value.shape()).ok()?;
            let dims = positions.iter().map(|p| p.len() as u64).collect();
            let made = Dense::make(dims, |index| {
                let from: Vec<u64> = index.iter().zip(&positions).map(|(&at, p)| p[at as usize]).collect();
                dense.index(&from)
            });
            Some((value.select(&selection, &slice).unwrap(), made))
        }
        Op::Concat(axis) => {
            let axis = axis % rank.max(1);
            let mut dims = dense.dims.clone();
            *dims.get_mut(axis)? *= 2;
            let made = Dense::make(dims, |index| {
                let mut from = index.to_vec();
                from[axis] %= dense.dims[axis];
                dense.index(&from)
            });
            Some((Value::concat(vec![value.clone(), value.clone()], axis).unwrap(), made))
        }
        Op::Stack(axis) => {
            let axis = axis % (rank + 1);
            let mut dims = dense.dims.clone();
            dims.insert(axis, 2);
            let made = Dense::make(dims, |index| {
                let mut from = index.to_vec();
                from.remove(axis);
                dense.index(&from)
            });
            (rank < 5).then(|| (Value::stack(vec![value.clone(), value.clone()], axis).unwrap(), made))
        }
        Op::Rows(pairs) => {
            let rows = *dense.dims.first()?;
            let mut targets = std::collections::BTreeMap::new();
            pairs.iter().for_each(|(from, to)| {
                targets.insert(to % rows, from % rows);
            });
            let (to, from): (Vec<u64>, Vec<u64>) = targets.iter().map(|(to, from)| (*to, *from)).unzip();
            let made = Dense::make(dense.dims.clone(), |index| {
                let mut at = index.to_vec();
                at[0] = targets.get(&at[0]).copied().unwrap_or(at[0]);
                dense.index(&at)
            });
            let map = Arc::new(RowMap::new(&from, &to).unwrap());
            Some((value.with_rows(value, map).unwrap(), made))
        }
        Op::Patch(runs, number) => {
            let (slice, positions) = slice_of(&dense.dims, runs);
            let selection = Selection::parse(&slice, value.shape()).ok()?;
            let with = Value::filled(DType::F32, selection.shape().unwrap(), &number.to_string()).unwrap();
            let made = Dense::make(dense.dims.clone(), |index| {
                let inside = index.iter().zip(&positions).all(|(at, p)| p.contains(at));
                if inside { *number } else { dense.index(index) }
            });
            Some((value.patch(&selection, &slice, &with).unwrap(), made))
        }
        Op::Resize(rows, fill) => {
            let own = *dense.dims.first()?;
            let mut dims = dense.dims.clone();
            dims[0] = *rows;
            let width = dense.values.len() / own as usize;
            let mean: Vec<f32> = (0..width)
                .map(|column| {
                    let sum =
                        (0..own as usize).fold(0f64, |sum, row| sum + f64::from(dense.values[row * width + column]));
                    (sum / own as f64) as f32
                })
                .collect();
            let mut values = dense.values.clone();
            values.truncate(*rows as usize * width);
            while values.len() < *rows as usize * width {
                match fill {
                    0 => values.extend(vec![0.0; width]),
                    1 => values.extend(&mean),
                    _ => values.extend(&dense.values[..width]),
                }
            }
            let more = |count: u64| match fill {
                0 => {
                    let mut dims = dense.dims.clone();
                    dims[0] = count;
                    Value::filled(DType::F32, Shape::new(dims).unwrap(), "0")
                }
                1 => value.mean()?.repeat(count),
                _ => value.row(0)?.repeat(count),
            };
            Some((value.resize_rows(*rows, more).unwrap(), Dense { dims, values }))
        }
        Op::Fuse(axis, blocks) => {
            let axis = in_blocks(&dense.dims, *axis, *blocks)?;
            let mut dims = dense.dims.clone();
            let block = dims[axis.axis] / axis.blocks;
            dims[axis.axis] *= 2;
            let made = Dense::make(dims, |index| {
                let mut from = index.to_vec();
                let at = index[axis.axis];
                from[axis.axis] = at / (2 * block) * block + at % block;
                dense.index(&from)
            });
            Some((Value::concat_in(vec![value.clone(), value.clone()], axis).unwrap(), made))
        }
        Op::Cut(axis, blocks, start, len) => {
            let axis = in_blocks(&dense.dims, *axis, *blocks)?;
            let block = dense.dims[axis.axis] / axis.blocks;
            let (start, len) = (start % block, 1 + len % (block - start % block));
            let mut dims = dense.dims.clone();
            dims[axis.axis] = len * axis.blocks;
            let made = Dense::make(dims, |index| {
                let mut from = index.to_vec();
                let at = index[axis.axis];
                from[axis.axis] = at / len * block + start + at % len;
                dense.index(&from)
            });
            Some((value.narrow_in(axis, start * axis.blocks, len * axis.blocks).unwrap(), made))
        }
        Op::Sum(a, b) => {
            let values = dense.values.iter().map(|&x| *a as f32 * x + *b as f32 * x).collect();
            let made = Value::merged(vec![value.clone(), value.clone()], &[*a, *b]).unwrap().unwrap();
            Some((made, Dense { dims: dense.dims.clone(), values }))
        }
    }
}

/// An axis of a shape in some number of equal blocks.
fn in_blocks(dims: &[u64], axis: usize, blocks: usize) -> Option<Axis> {
    let axis = axis.checked_rem(dims.len())?;
    let divisors: Vec<u64> = (1..=dims[axis]).filter(|blocks| dims[axis].is_multiple_of(*blocks)).collect();
    Some(Axis { axis, blocks: divisors[blocks % divisors.len()] })
}

/// All elements, read by tiles of so many elements.
fn read(memory: &Memory, value: &Value, cut: fn(&Shape, u64) -> Tiles, budget: u64) -> Vec<f32> {
    let files = weightlift_io::real();
    let inputs = [Source::new(files.as_ref(), memory, Path::new("."))];
    let mut reader = Reader::new(&inputs, Overflow::Inf);
    let tiles = cut(value.shape(), budget);
    let mut all = vec![0f32; value.shape().elements() as usize];
    for tile in 0..tiles.count() {
        let region = tiles.region(tile);
        let mut bytes = vec![0xaa; region.size.elements() as usize * 4];
        reader.read(value, &region, &mut bytes).unwrap();
        let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        for (first, count, at) in tiles.runs(tile) {
            all[first as usize..(first + count) as usize].copy_from_slice(&numbers[at as usize..(at + count) as usize]);
        }
    }
    all
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_expression_equals_the_naive_interpreter(
        dims in prop::collection::vec(1..6u64, 0..4),
        ops in prop::collection::vec(op(), 0..6),
        budget in prop_oneof![Just(1u64), 2..40u64, Just(100_000)],
    ) {
        let count: u64 = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|at| (at as f32) * 1.25 - 3.0).collect();
        let memory = Memory::new(&[(&dims, values.clone())]);
        let origin = Origin { input: 0, entry: EntryId(0) };
        let mut value = Value::of_entry(origin, memory.catalog.entry(EntryId(0)), "t0".into());
        let mut dense = Dense { dims, values };
        for op in &ops {
            if dense.values.len() > 20_000 {
                break;
            }
            if let Some((next, naive)) = apply(op, &value, &dense) {
                prop_assert_eq!(next.shape().dims(), &naive.dims[..], "{:?}", op);
                (value, dense) = (next, naive);
            }
        }
        let budget = budget.max(dense.values.len() as u64 / 400);
        prop_assert_eq!(bits(&read(&memory, &value, Tiles::of, budget)), bits(&dense.values), "{:?}", value);
        prop_assert_eq!(bits(&read(&memory, &value, Tiles::square, budget)), bits(&dense.values), "{:?}", value);
    }
}

#[test]
fn random_numbers_depend_on_seed_and_place_alone() {
    let memory = Memory::new(&[]);
    let make = |seed| Value::normal(DType::F32, Shape::new([500, 40]).unwrap(), 0.02, seed).unwrap();
    let whole = read(&memory, &make(7), Tiles::of, 1 << 20);
    assert_eq!(bits(&whole), bits(&read(&memory, &make(7), Tiles::of, 3)));
    assert_eq!(bits(&whole), bits(&read(&memory, &make(7), Tiles::square, 77)));
    assert_ne!(bits(&whole), bits(&read(&memory, &make(8), Tiles::of, 1 << 20)));
    let mean = whole.iter().map(|&x| f64::from(x)).sum::<f64>() / whole.len() as f64;
    let variance = whole.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / whole.len() as f64;
    // 20,000 numbers: three deviations of the mean and of the variance.
    assert!(mean.abs() < 3.0 * 0.02 / 20_000f64.sqrt(), "{mean}");
    assert!((variance / 0.0004 - 1.0).abs() < 3.0 * (2.0 / 20_000f64).sqrt(), "{variance}");
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    let memory = Memory::new(&[(&[2, 3], vec![0.0; 6])]);
    let value = Value::of_entry(Origin { input: 0, entry: EntryId(0) }, memory.catalog.entry(EntryId(0)), "t".into());
    let message = |result: Result<Value>| result.unwrap_err().to_string();
    assert!(message(value.permute(Some(&[0]))).contains("no order of the 2"));
    assert!(message(value.permute(Some(&[0, 0]))).contains("no order"));
    assert!(message(value.reshape(&[4, -1])).contains("cannot become"));
    assert!(message(value.reshape(&[-1, -1])).contains("one dimension may be -1"));
    assert!(message(value.reshape(&[0, -1])).contains("cannot become"));
    assert!(message(Value::concat(vec![value.clone(), value.permute(None).unwrap()], 0)).contains("cannot be joined"));
    assert!(message(Value::concat(vec![value.clone()], 2)).contains("no axis 2"));
    assert!(message(value.row(2)).contains("there are 2 rows"));
    let map = |from: &[u64], to: &[u64]| RowMap::new(from, to).map(Arc::new);
    assert!(message(value.with_rows(&value, map(&[2], &[0]).unwrap())).contains("row 2 is out of range"));
    assert!(message(value.with_rows(&value, map(&[0], &[2]).unwrap())).contains("row 2 is out of range"));
    assert!(map(&[0, 1], &[1, 1]).unwrap_err().to_string().contains("row 1 is the target of two"));
    assert!(message(Value::filled(DType::U8, Shape::scalar(), "256")).contains("out of range"));
    assert!(message(Value::filled(DType::F16, Shape::scalar(), "1e9")).contains("out of range"));
    assert!(message(Value::filled(DType::I32, Shape::scalar(), "0.5")).contains("write an integer"));
    assert!(message(Value::filled(DType::Bool, Shape::scalar(), "1")).contains("true or false"));
    assert!(Value::filled(DType::I64, Shape::scalar(), "9223372036854775807").is_ok());
    assert!(Value::filled(DType::F32, Shape::scalar(), "inf").is_ok());
}
