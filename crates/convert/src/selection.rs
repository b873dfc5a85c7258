//! Slices as Python writes them: which positions of each axis.

use weightlift_core::{Error, Result, Shape};

/// Evenly spaced positions along an axis: `count` of them, the first at `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first position.
    pub start: u64,
    /// From one to the next; backwards where negative.
    pub step: i64,
    /// How many positions.
    pub count: u64,
}

impl Run {
    /// The position of one of them.
    pub fn at(self, index: u64) -> u64 {
        let distance = index.saturating_mul(self.step.unsigned_abs());
        if self.step < 0 { self.start.saturating_sub(distance) } else { self.start.saturating_add(distance) }
    }

    /// `count` of them from the one at `index` on.
    pub fn part(self, index: u64, count: u64) -> Run {
        Run { start: self.at(index), count, ..self }
    }

    /// The lowest position.
    pub fn low(self) -> u64 {
        if self.step < 0 { self.at(self.count.saturating_sub(1)) } else { self.start }
    }

    /// How many positions lie from the lowest to the highest.
    pub fn span(self) -> u64 {
        match self.count {
            0 => 0,
            count => (count - 1).saturating_mul(self.step.unsigned_abs()).saturating_add(1),
        }
    }
}

/// What is selected of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// One run; two where the middle is left out.
    pub runs: Vec<Run>,
    /// Whether the result has this axis: an index drops it.
    pub kept: bool,
}

impl Axis {
    /// How many positions are selected.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// One of the positions.
    pub fn at(&self, index: u64) -> u64 {
        let mut left = index;
        for run in &self.runs {
            if left < run.count {
                return run.at(left);
            }
            left -= run.count;
        }
        0
    }
}

/// A part of a tensor, an [`Axis`] for each of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// One for each axis of the tensor.
    pub axes: Vec<Axis>,
}

impl Selection {
    /// The positions of every axis, the first run of each: what [`Selection::parse`] and [`Selection::whole`] make.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let none = Run { start: 0, step: 1, count: 0 };
        self.axes.iter().map(|axis| axis.runs.first().copied().unwrap_or(none)).collect()
    }

    /// All of a tensor.
    pub fn whole(shape: &Shape) -> Selection {
        let run = |&count: &u64| Run { start: 0, step: 1, count };
        Selection { axes: shape.dims().iter().map(|dim| Axis { runs: vec![run(dim)], kept: true }).collect() }
    }

    /// Reads what stands between the brackets, as Python's basic indexing has it.
    ///
    /// # Errors
    /// `Request` for anything else, and for an index out of range, naming axis and size.
    pub fn parse(text: &str, shape: &Shape) -> Result<Selection> {
        let mut items: Vec<&str> = text.split(',').map(str::trim).collect();
        if items.len() > 1 && items.last() == Some(&"") {
            items.pop();
        }
        let dots = items.iter().filter(|&&item| item == "...").count();
        let (given, rank) = (items.len() - dots.min(1), shape.rank());
        if dots > 1 {
            return Err(Error::request(format!("[{text}]: \"...\" can stand only once")));
        }
        if given > rank {
            return Err(Error::request(format!("[{text}]: {given} indices for {rank} axes, shape {shape}")));
        }
        let whole = std::iter::repeat_n(":", rank - given);
        let at = items.iter().position(|&item| item == "...");
        items.splice(at.map_or(items.len()..items.len(), |at| at..at + 1), whole);
        let axes = items.iter().zip(shape.dims()).enumerate();
        let axes = axes.map(|(axis, (item, &dim))| parse_axis(item, axis, dim));
        let axes = axes.collect::<Result<_>>().map_err(|error| error.help(HELP))?;
        Ok(Selection { axes })
    }

    /// The shape of the result.
    ///
    /// # Errors
    /// `Malformed` where a dimension of 0 is gone and the others are too large.
    pub fn shape(&self) -> Result<Shape> {
        Shape::new(self.axes.iter().filter(|axis| axis.kept).map(Axis::count).collect::<Vec<_>>())
    }

    /// How many elements are selected.
    pub fn elements(&self) -> u64 {
        if self.axes.iter().any(|axis| axis.count() == 0) {
            return 0;
        }
        self.axes.iter().fold(1, |n, axis| n.saturating_mul(axis.count()))
    }

    /// The same without the middle of every axis that has more than `2 * edge` positions.
    pub fn corners(&self, edge: u64) -> Selection {
        let axes = self.axes.iter().map(|axis| match axis.runs.as_slice() {
            &[run] if run.count > 2 * edge => {
                let runs = vec![run.part(0, edge), run.part(run.count - edge, edge)];
                Axis { runs, kept: axis.kept }
            }
            _ => axis.clone(),
        });
        Selection { axes: axes.collect() }
    }
}

/// Finds what `NAME` or `NAME[SLICE]` means: a tensor of that whole name, brackets included, comes first; else the last
/// brackets are the slice. `find` looks a name up.
///
/// # Errors
/// What `find` answers.
pub fn named_part<T>(argument: &str, find: impl Fn(&str) -> Result<Option<T>>) -> Result<Option<(T, Option<&str>)>> {
    if let Some(found) = find(argument)? {
        return Ok(Some((found, None)));
    }
    let Some((name, slice)) = argument.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) else {
        return Ok(None);
    };
    Ok(find(name)?.map(|found| (found, Some(slice))))
}

const HELP: &str = "a slice is written as in Python: [0], [-1], [2:5], [::2, ...]";

fn parse_axis(item: &str, axis: usize, dim: u64) -> Result<Axis> {
    let size = i128::from(dim);
    if !item.contains(':') {
        let given = number(item)?;
        let index = if given < 0 { given + size } else { given };
        if !(0..size).contains(&index) {
            return Err(Error::request(format!("index {given} is out of range for axis {axis} of size {dim}")));
        }
        return Ok(Axis { runs: vec![Run { start: index as u64, step: 1, count: 1 }], kept: false });
    }
    let parts: Vec<&str> = item.split(':').map(str::trim).collect();
    let bound = |at: usize| parts.get(at).filter(|part| !part.is_empty()).map(|part| number(part)).transpose();
    let (start, stop, step) = (bound(0)?, bound(1)?, bound(2)?.unwrap_or(1));
    if parts.len() > 3 {
        return Err(Error::request(format!("{item:?} has more than two colons")));
    }
    if step == 0 {
        return Err(Error::request(format!("{item:?} has a step of 0")));
    }
    // Bounds beyond the ends are brought back to them; a backward slice may end before the first position.
    let (lowest, highest) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let clamp = |bound: i128| if bound < 0 { bound + size } else { bound }.clamp(lowest, highest);
    let start = start.map_or(if step < 0 { highest } else { lowest }, clamp);
    let stop = stop.map_or(if step < 0 { lowest } else { highest }, clamp);
    let distance = if step < 0 { start - stop } else { stop - start };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    // With one position the step says nothing, and a long one need not fit.
    let step = if count > 1 { step as i64 } else { 1 };
    let start = if count == 0 { 0 } else { start as u64 };
    Ok(Axis { runs: vec![Run { start, step, count: count as u64 }], kept: true })
}

/// An integer; what does not fit is as good as the largest that does.
fn number(text: &str) -> Result<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::request(format!("{text:?} is no index")));
    }
    let number = digits.parse::<i64>().unwrap_or(i64::MAX);
    Ok(i128::from(if negative { -number } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    /// The positions along each axis, and which axes are kept.
    fn positions(text: &str, dims: &[u64]) -> Vec<(Vec<u64>, bool)> {
        let positions = |run: &Run| (0..run.count).map(|index| run.at(index)).collect::<Vec<_>>();
        let axes = Selection::parse(text, &shape(dims)).unwrap().axes;
        axes.iter().map(|axis| (axis.runs.iter().flat_map(positions).collect(), axis.kept)).collect()
    }

    fn message(text: &str, dims: &[u64]) -> String {
        Selection::parse(text, &shape(dims)).unwrap_err().to_string()
    }

    #[test]
    fn one_axis_as_in_python() {
        let expected: &[(&str, &[u64])] = &[
            (":", &[0, 1, 2, 3, 4]),
            ("::", &[0, 1, 2, 3, 4]),
            ("1:3", &[1, 2]),
            ("-2:", &[3, 4]),
            (":-2", &[0, 1, 2]),
            ("::2", &[0, 2, 4]),
            ("1::3", &[1, 4]),
            ("::-1", &[4, 3, 2, 1, 0]),
            ("::-2", &[4, 2, 0]),
            ("3:0:-2", &[3, 1]),
            ("3::-2", &[3, 1]),
            (":2:-1", &[4, 3]),
            ("-1:-9:-1", &[4, 3, 2, 1, 0]),
            ("9:", &[]),
            ("3:1", &[]),
            ("-9:2", &[0, 1]),
            ("2:99999999999999999999999", &[2, 3, 4]),
            ("::99999999999999999999999", &[0]),
            ("::-9", &[4]),
            (" 1 : 3 : +1 ", &[1, 2]),
            ("9:-9:-1", &[4, 3, 2, 1, 0]),
            ("-9::-1", &[]),
        ];
        for (text, wanted) in expected {
            assert_eq!(positions(text, &[5]), [(wanted.to_vec(), true)], "{text}");
        }
        assert_eq!(positions("::-1", &[0]), [(vec![], true)]);
    }

    #[test]
    fn several_axes() {
        let all = |count| (0..count).collect::<Vec<u64>>();
        assert_eq!(positions("1", &[3, 2]), [(vec![1], false), (all(2), true)]);
        assert_eq!(positions("0:2, -1", &[3, 2]), [(vec![0, 1], true), (vec![1], false)]);
        assert_eq!(positions("..., 0", &[3, 2, 4]), [(all(3), true), (all(2), true), (vec![0], false)]);
        assert_eq!(positions("1, ..., 0", &[3, 2]), [(vec![1], false), (vec![0], false)]);
        assert_eq!(positions("...", &[]), []);
        assert_eq!(positions("1,", &[3]), [(vec![1], false)]);
        assert_eq!(Selection::parse("1, ::2", &shape(&[3, 5])).unwrap().shape().unwrap(), shape(&[3]));
    }

    #[test]
    fn errors_name_axis_and_size() {
        assert!(message("5", &[5]).contains("index 5 is out of range for axis 0 of size 5"));
        assert!(message(":, -4", &[5, 3]).contains("index -4 is out of range for axis 1 of size 3"));
        assert!(message("0", &[0]).contains("axis 0 of size 0"));
        assert!(message("0, 0", &[5]).contains("2 indices for 1 axes, shape [5]"));
        assert!(message("..., ...", &[5]).contains("only once"));
        assert!(message("::0", &[5]).contains("a step of 0"));
        assert!(message("1:2:3:4", &[5]).contains("more than two colons"));
        for text in ["", "a", "1.5", "0x1", "--1", "1 2", "None", ",", "1,,2", "- 1"] {
            assert!(message(text, &[5, 5, 5]).contains("is no index"), "{text}");
        }
        assert!(message("0", &[]).contains("1 indices for 0 axes"));
    }

    #[test]
    fn corners_leave_out_the_middle() {
        let selection = Selection::parse("::-1, 0:6, 2", &shape(&[9, 9, 9])).unwrap().corners(3);
        let run = |start, step, count| Run { start, step, count };
        assert_eq!(selection.axes[0].runs, [run(8, -1, 3), run(2, -1, 3)]);
        assert_eq!(selection.axes[1].runs, [run(0, 1, 6)]);
        assert_eq!(selection.elements(), 36);
    }
}
