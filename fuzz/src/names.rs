//! What a user writes to name tensors.

use crate::Target;
use crate::seeds::Seeds;
use weightlift_convert::{Pattern, Rename, Selection, named_part};
use weightlift_core::{Catalog, DType, Entry, KeyPath, Shape};

const NAMES: [&str; 6] = ["bert/encoder/layer_11/kernel", "layer.0.weight", "a:0", "", "{a,b}*", "größe\n[0]"];

/// A rename rule, and behind the first line feed a name for it.
pub const RENAME: Target = Target {
    seeds: Seeds::Texts(&[
        r"layer_(\d+)/=layer.${1+1}.",
        r"^(?P<a>\w+)/(kernel|bias)$=${a}.$2$$",
        "x*=-\nxyz",
        r"(-?\d+)=${1*9223372036854775807}",
        r"=${0-1}",
        r"(?i)GRÖSSE|\[=<\n",
    ]),
    run: |data| {
        let text = String::from_utf8_lossy(data);
        let (rule, name) = text.split_once('\n').unwrap_or((&text, ""));
        let Ok(rename) = Rename::parse(rule) else { return };
        for name in NAMES.into_iter().chain([name]) {
            let _ = rename.apply(name);
        }
    },
};

/// A pattern, and behind the first line feed a name for it.
pub const PATTERN: Target = Target {
    seeds: Seeds::Texts(&[
        "bert/*/layer_??/**",
        "{a,b{c,d}}/x\nbd/x",
        r"/layer[._](\d+)/",
        "a:0",
        "**\n",
        r"/(\w+\/){3}kernel$/",
        "größe[0]",
    ]),
    run: |data| {
        let text = String::from_utf8_lossy(data);
        let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
        let Ok(pattern) = Pattern::new(pattern) else { return };
        let names = || NAMES.into_iter().chain([name]);
        let found = pattern.select(names());
        assert!(found.iter().all(|&at| at < names().count()));
        assert!(pattern.select_or_contains(names()).len() >= found.len());
        let _ = pattern.unmatched("--include", names()).to_string();
    },
};

/// What stands between the brackets of `NAME[SLICE]`, and the whole of it.
pub const SLICE: Target = Target {
    seeds: Seeds::Texts(&[
        "0",
        "-1, 2:5",
        "::2, ...",
        "...",
        "3:0:-1,:",
        ":,:,:",
        "w[0]",
        "b.c[-1:]",
        "+9223372036854775807:",
    ]),
    run: |data| {
        let text = String::from_utf8_lossy(data);
        for dims in [vec![], vec![0], vec![7], vec![3, 5, 2], vec![1 << 40, 1 << 20]] {
            check_slice(&text, &Shape::new(dims).expect("small enough"));
        }
        let entry = |name: &str| Entry::absent(KeyPath::flat(name), DType::F32, Shape::default(), "fuzzed");
        let mut catalog = Catalog::new("fuzz", "names");
        catalog.entries.extend(NAMES.map(entry));
        let _ = named_part(&text, |name| Ok(catalog.named(name).next().map(drop)));
    },
};

/// Every position that a slice selects lies in the tensor.
fn check_slice(text: &str, shape: &Shape) {
    let Ok(selection) = Selection::parse(text, shape) else { return };
    let _ = (selection.shape(), selection.elements());
    for selection in [selection.corners(3), selection] {
        assert_eq!(selection.axes.len(), shape.rank());
        for (axis, &dim) in selection.axes.iter().zip(shape.dims()) {
            let count = axis.count();
            let ends = [0, count / 2, count.saturating_sub(1)];
            assert!(count <= dim && (count == 0 || ends.iter().all(|&at| axis.at(at) < dim)), "{axis:?} of {dim}");
        }
    }
}
