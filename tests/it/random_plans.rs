//! Random plans over random checkpoints against a naive interpreter that holds everything in memory: any format in, any
//! out, any number of threads, any tile size.

use proptest::prelude::*;
use std::path::Path;
use weightlift::{
    Average, CopyRows, DType, Format, Join, Pattern, Plan, Rename, ResizeRows, RowPairs, SaveOptions, Set, Shape,
    Slice, Split, Step, Transpose,
};
use weightlift_core::{BlobId, Manifest, WriteOptions};

/// A tensor of the naive interpreter: f32, two axes.
#[derive(Debug, Clone, PartialEq)]
struct Matrix {
    name: String,
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    fn transposed(&self) -> Matrix {
        let at = |column: usize, row: usize| self.values[row * self.columns + column];
        let values =
            (0..self.columns).flat_map(|c| (0..self.rows).map(move |r| (c, r))).map(|(c, r)| at(c, r)).collect();
        Matrix { name: self.name.clone(), rows: self.columns, columns: self.rows, values }
    }
}

/// One step; numbers are brought into range where they are used.
#[derive(Debug, Clone)]
enum Op {
    Exclude(usize),
    Prefix(u8),
    Rename,
    Transpose(usize),
    CopyRows(usize, Vec<(usize, usize)>),
    Set(usize, usize, f32),
    Resize(usize, usize, u8),
    Slice(usize, usize),
    Split(usize, usize),
    Concat,
    Average(f32),
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..8usize;
    prop_oneof![
        at().prop_map(Op::Exclude),
        (0..3u8).prop_map(Op::Prefix),
        Just(Op::Rename),
        at().prop_map(Op::Transpose),
        (at(), prop::collection::vec((0..40usize, 0..40usize), 1..5)).prop_map(|(at, rows)| Op::CopyRows(at, rows)),
        (at(), 0..40usize, -8.0..8.0f32).prop_map(|(at, row, value)| Op::Set(at, row, value)),
        (at(), 1..40usize, 0..3u8).prop_map(|(at, rows, fill)| Op::Resize(at, rows, fill)),
        (at(), 1..30usize).prop_map(|(at, rows)| Op::Slice(at, rows)),
        (at(), 1..4usize).prop_map(|(at, parts)| Op::Split(at, parts)),
        Just(Op::Concat),
        (0.0..1.0f32).prop_map(Op::Average),
    ]
}

/// Does a step naively, and answers what the plan is told; `None` where it cannot be meant here.
fn apply(op: &Op, tensors: &mut Vec<Matrix>, other: &[Matrix], pristine: bool) -> Option<Step> {
    let count = tensors.len();
    let pick = |at: usize| at.checked_rem(count);
    match op {
        Op::Exclude(at) => {
            let at = pick(*at).filter(|_| tensors.len() > 1)?;
            let gone = tensors.remove(at);
            Some(Step::Exclude(vec![Pattern::new(&gone.name).unwrap()]))
        }
        Op::Prefix(letter) => {
            let prefix = format!("{}_", char::from(b'p' + letter));
            tensors.iter_mut().for_each(|tensor| tensor.name.insert_str(0, &prefix));
            Some(Step::AddPrefix(prefix))
        }
        Op::Rename => {
            tensors.iter().any(|tensor| tensor.name.contains('t')).then_some(())?;
            tensors.iter_mut().for_each(|tensor| tensor.name = tensor.name.replace('t', "u"));
            Some(Step::Rename(Rename::new("t", "u").unwrap()))
        }
        Op::Transpose(at) => {
            let at = pick(*at)?;
            tensors[at] = tensors[at].transposed();
            Some(Step::Transpose(Transpose::new(Pattern::new(&tensors[at].name).unwrap(), None)))
        }
        Op::CopyRows(at, pairs) => {
            let at = pick(*at)?;
            let before = tensors[at].clone();
            let mut seen = std::collections::BTreeMap::new();
            pairs.iter().for_each(|(from, to)| {
                seen.insert(to % before.rows, from % before.rows);
            });
            for (&to, &from) in &seen {
                tensors[at].values[to * before.columns..(to + 1) * before.columns].copy_from_slice(before.row(from));
            }
            let pairs = RowPairs::new(seen.iter().map(|(to, from)| (*from as u64, *to as u64)));
            Some(Step::CopyRows(CopyRows::by_pairs(&before.name, &before.name, pairs)))
        }
        Op::Set(at, row, value) => {
            let at = pick(*at)?;
            let (row, columns) = (row % tensors[at].rows, tensors[at].columns);
            tensors[at].values[row * columns..(row + 1) * columns].fill(*value);
            Some(Step::Set(Set::new(&format!("{}[{row}]", tensors[at].name), &value.to_string())))
        }
        Op::Resize(at, rows, fill) => {
            let tensor = &mut tensors[pick(*at)?];
            let (before, columns) = (tensor.clone(), tensor.columns);
            let mean: Vec<f32> = (0..columns)
                .map(|c| {
                    ((0..before.rows).fold(0f64, |sum, r| sum + f64::from(before.row(r)[c])) / before.rows as f64)
                        as f32
                })
                .collect();
            tensor.values.truncate(rows * columns);
            for _ in before.rows..*rows {
                match fill {
                    0 => tensor.values.extend(vec![0.0; columns]),
                    1 => tensor.values.extend(&mean),
                    _ => tensor.values.extend(before.row(0)),
                }
            }
            tensor.rows = *rows;
            let fill = ["zero", "mean", "row:0"][usize::from(*fill)];
            Some(Step::ResizeRows(ResizeRows::parse(&format!("{}={rows}:{fill}", before.name)).unwrap()))
        }
        Op::Slice(at, rows) => {
            let tensor = &mut tensors[pick(*at)?];
            tensor.rows = tensor.rows.min(*rows);
            tensor.values.truncate(tensor.rows * tensor.columns);
            Some(Step::Slice(Slice(format!("{}[:{rows}]", tensor.name))))
        }
        Op::Split(at, parts) => {
            let at = pick(*at)?;
            let whole = tensors[at].clone();
            (*parts <= whole.rows).then_some(())?;
            let mut from = 0;
            let cut = (0..*parts).map(|part| {
                let rows = whole.rows / parts + usize::from(part < whole.rows % parts);
                let values = whole.values[from * whole.columns..(from + rows) * whole.columns].to_vec();
                from += rows;
                Matrix { name: format!("{}.{part}", whole.name), rows, columns: whole.columns, values }
            });
            let cut: Vec<Matrix> = cut.collect();
            tensors.splice(at..=at, cut);
            Some(Step::Split(Split::parse(&format!("{0}={0}.{{i}}:{parts}", whole.name))))
        }
        Op::Concat => {
            let first = tensors.iter().find(|tensor| tensor.name.ends_with(".0"))?.clone();
            let stem = first.name.strip_suffix(".0")?.to_owned();
            let is_part = |tensor: &Matrix| {
                tensor.name.strip_prefix(&stem).is_some_and(|rest| rest.len() == 2 && rest.starts_with('.'))
            };
            let mut parts: Vec<Matrix> = tensors.iter().filter(|tensor| is_part(tensor)).cloned().collect();
            parts.sort_by(|a, b| a.name.cmp(&b.name));
            let whole =
                parts.iter().enumerate().all(|(at, p)| p.columns == first.columns && p.name == format!("{stem}.{at}"));
            whole.then_some(())?;
            let at = tensors.iter().position(is_part)?;
            let (rows, values) =
                (parts.iter().map(|p| p.rows).sum(), parts.iter().flat_map(|p| p.values.clone()).collect());
            tensors[at] = Matrix { name: stem.clone(), rows, columns: first.columns, values };
            let mut index = 0;
            tensors.retain(|tensor| {
                index += 1;
                index - 1 == at || !is_part(tensor)
            });
            Some(Step::Concat(Join::parse(&format!(r"^{stem}\.(\d)$={stem}")).unwrap()))
        }
        Op::Average(weight) => {
            pristine.then_some(())?;
            let rest = 1.0 - weight;
            for (tensor, other) in tensors.iter_mut().zip(other) {
                tensor.values.iter_mut().zip(&other.values).for_each(|(a, b)| *a = weight * *a + rest * b);
            }
            Some(Step::Average(Average::weighted([f64::from(*weight), f64::from(rest)])))
        }
    }
}

fn formats() -> [(&'static dyn Format, &'static str); 4] {
    [
        (&weightlift_safetensors::Safetensors, "safetensors"),
        (&weightlift_torch::Torch, "pt"),
        (&weightlift_tf::TensorFlow, "ckpt"),
        (&weightlift_npy::Npz, "npz"),
    ]
}

fn write(format: &dyn Format, path: &Path, tensors: &[Matrix]) {
    let mut manifest = Manifest::default();
    for tensor in tensors {
        let shape = Shape::new([tensor.rows as u64, tensor.columns as u64]).unwrap();
        manifest.add_tensor(&tensor.name, DType::F32, shape);
    }
    let writer = format.create(weightlift_io::real(), path, manifest, &WriteOptions::default()).unwrap();
    for (at, tensor) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write_at(BlobId(at as u32), 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Matrix> {
    let opened = weightlift::open(path).unwrap();
    let one = |entry: &weightlift::Entry| {
        let tensor = opened.get::<f32>(&entry.name).unwrap();
        let [rows, columns] = tensor.shape[..] else { panic!("{}: {:?}", entry.name, tensor.shape) };
        Matrix { name: entry.name.clone(), rows, columns, values: tensor.values }
    };
    let mut all: Vec<Matrix> = opened.catalog().entries.iter().map(one).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_equals_the_naive_interpreter(
        shapes in prop::collection::vec((1..24usize, 1..12usize), 1..4),
        ops in prop::collection::vec(op(), 1..7),
        (from, to) in (0..4usize, 0..4usize),
        threads in 1..4usize,
        tile_bytes in prop_oneof![Just(4u64), Just(64), Just(512 << 10)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let make = |offset: f32| -> Vec<Matrix> {
            let tensor = |(at, &(rows, columns)): (usize, &(usize, usize))| Matrix {
                name: format!("t{at}"),
                rows,
                columns,
                values: (0..rows * columns).map(|i| i as f32 * 0.75 + offset + at as f32).collect(),
            };
            shapes.iter().enumerate().map(tensor).collect()
        };
        let (mut tensors, other) = (make(-3.0), make(40.0));
        let (format, extension) = formats()[from];
        let (input, second) = (dir.path().join(format!("in.{extension}")), dir.path().join(format!("two.{extension}")));
        write(format, &input, &tensors);
        write(format, &second, &other);
        let (mut plan, mut averaged) = (Plan::new(), false);
        for (at, op) in ops.iter().enumerate() {
            if let Some(step) = apply(op, &mut tensors, &other, at == 0) {
                averaged |= matches!(step, Step::Average(_));
                plan = plan.step(step);
            }
        }
        let mut opened = weightlift::open(&input).unwrap();
        if averaged {
            opened = opened.with("", weightlift::open(&second).unwrap());
        }
        let output = dir.path().join(format!("out.{}", formats()[to].1));
        let mut save = SaveOptions::default();
        (save.options.threads, save.options.tile_bytes) = (threads, tile_bytes);
        opened.save(&plan, &output, &save).unwrap();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        prop_assert_eq!(read(&output), tensors, "{:?}", plan);
    }
}
