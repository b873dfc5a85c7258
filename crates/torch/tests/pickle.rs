//! The pickle machine on sound, broken and hostile pickles.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

use weightlift_core::{Kind, Limits};
use weightlift_torch::pickle::{Graph, Node, NodeId, parse};

fn read(pickle: &[u8]) -> weightlift_core::Result<(Graph, NodeId)> {
    parse(pickle.to_vec(), &Limits::default())
}

fn described(pickle: &[u8]) -> String {
    let (graph, root) = read(pickle).unwrap();
    graph.describe(root)
}

fn items(pickle: &[u8]) -> Vec<String> {
    let (graph, root) = read(pickle).unwrap();
    let items = graph.pairs(root).or(graph.items(root)).unwrap();
    items.iter().map(|&item| graph.describe(item)).collect()
}

/// `{"a": torch.tensor([1., 2.])}` by torch.save.
const GOLDEN: &[u8] =
    b"\x80\x02}(X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n\
    X\x01\0\0\0\x30X\x03\0\0\0cpuK\x02tQK\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRu.";

#[test]
fn values_of_every_protocol() {
    assert_eq!(described(b"N."), "None");
    assert_eq!(described(b"I01\n."), "True");
    assert_eq!(described(b"I-5\n."), "-5");
    assert_eq!(described(b"L5L\n."), "5");
    assert_eq!(described(b"F1.5\n."), "1.5");
    assert_eq!(described(b"S'a\\n'\n."), "'a\\n'");
    assert_eq!(described(b"V\\u00e9\n."), "'é'");
    assert_eq!(described(b"\x80\x02J\xff\xff\xff\xff."), "-1");
    assert_eq!(described(b"\x80\x02\x8a\x01\xff."), "-1");
    assert_eq!(described(b"\x80\x02\x8a\x00."), "0");
    assert_eq!(described(b"\x80\x02\x8b\x02\0\0\0\0\x01."), "256");
    assert_eq!(described(b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."), "an integer of 9 bytes");
    assert_eq!(described(b"G\x3f\xf8\0\0\0\0\0\0."), "1.5");
    assert_eq!(described(b"\x80\x03C\x02ab."), "2 bytes");
    assert_eq!(described(b"\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x01a\x94."), "'a'");
    assert_eq!(described(b"\x80\x05\x96\x01\0\0\0\0\0\0\0a."), "bytearray of 1");
    assert_eq!(described(b"\x80\x04\x8c\x02os\x8c\x06system\x93."), "os.system");
    assert_eq!(described(b"(ios\nsystem\n."), "os.system");
    assert_eq!(described(b"(cos\nsystem\nK\x01o."), "os.system");
    assert_eq!(described(b"\x82\x07."), "object of extension code 7");
}

#[test]
fn containers_of_every_protocol() {
    assert_eq!(items(b"(I1\nI2\nl."), ["1", "2"]);
    assert_eq!(items(b"(K\x01K\x02d."), ["1", "2"]);
    assert_eq!(items(b"](K\x01K\x02e."), ["1", "2"]);
    assert_eq!(items(b"]K\x01a."), ["1"]);
    assert_eq!(items(b"}K\x01K\x02s."), ["1", "2"]);
    assert_eq!(items(b"(K\x01K\x02t."), ["1", "2"]);
    assert_eq!(items(b"K\x01K\x02K\x03\x87."), ["1", "2", "3"]);
    assert_eq!(items(b"\x8f(K\x01\x90."), ["1"]);
    assert_eq!(items(b"(K\x01\x91."), ["1"]);
    assert_eq!(items(b"(K\x01K\x021K\x05K\x062\x87."), ["5", "6", "6"]);
    assert_eq!(items(b"K\x01(K\x0200K\x02\x86."), ["1", "2"], "POP takes a value, then the mark");
    assert_eq!(items(b"]q\0(h\0h\0e."), ["list of 2", "list of 2"]);
}

#[test]
fn rules_are_enforced() {
    let message = |pickle: &[u8]| {
        let error = read(pickle).unwrap_err();
        assert!(error.place().offset.is_some(), "{error}");
        error.message().to_owned()
    };
    assert!(message(b"").contains("ends early"));
    assert!(message(b"N").contains("ends early"));
    assert!(message(b".").contains("empty stack"));
    assert!(message(b"u.").contains("mark"));
    assert!(message(b"]K\x01K\x02s.").contains("puts a value into list"));
    assert!(message(b"K\x01K\x02K\x03s.").contains("puts a value into 1"));
    assert!(message(b")K\x02a.").contains("puts a value into tuple"));
    assert!(message(b"}K\x02a.").contains("puts a value into dict"));
    assert!(message(b"}(K\x02u.").contains("without a value"));
    assert!(message(b"(K\x02d.").contains("without a value"));
    assert!(message(b"}Nb.").contains("state is given to dict"));
    assert!(message(b"h\x05.").contains("memo number 5"));
    assert!(message(b"gx\n.").contains("memo number"));
    assert!(message(b"K\x01\x86.").contains("tuple of 2"));
    assert!(message(b"K\x01(K\x02\x86.").contains("tuple of 2"), "a mark is no value");
    assert!(message(b"cos\nsystem\nNR.").contains("instead of a tuple"));
    assert!(message(b"(o.").contains("without a class"));
    assert!(message(b"NN\x93.").contains("instead of text"));
    assert!(message(b"\x80\x06N.").contains("protocol 6"));
    assert!(message(b"\x80\x05\x97.").contains("outside of it"));
    assert!(message(b"\xff.").contains("0xff"));
    assert!(message(b"\x8b\xff\xff\xff\xff.").contains("-1 bytes"));
    assert!(message(b"Ix\n.").contains("no literal"));
    assert!(message(b"X\0\0\0\x10abc.").contains("268435456 more bytes are needed, 4 are left"));
    let mut small = Limits::default();
    small.header_bytes = 10;
    assert_eq!(parse(GOLDEN.to_vec(), &small).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn every_cut_is_an_error() {
    for len in 0..GOLDEN.len() {
        assert_eq!(read(&GOLDEN[..len]).unwrap_err().kind(), Kind::Malformed);
    }
    assert_eq!(GOLDEN.len(), 135);
    assert_eq!(described(GOLDEN), "dict of 1");
}

#[test]
fn no_flipped_bit_breaks_the_machine() {
    for at in 0..GOLDEN.len() * 8 {
        let mut flipped = GOLDEN.to_vec();
        flipped[at / 8] ^= 1 << (at % 8);
        if let Ok((graph, root)) = read(&flipped) {
            graph.describe(root);
        }
    }
}

#[test]
fn depth_costs_no_stack() {
    let depth = 500_000;
    let nested = [vec![b'('; depth], vec![b't'; depth], vec![b'.']].concat();
    let (graph, mut node) = read(&nested).unwrap();
    let mut found = 0;
    while let Some(&[inner]) = graph.items(node) {
        (node, found) = (inner, found + 1);
    }
    assert_eq!(found, depth - 1);
}

#[test]
fn memory_is_bounded_by_the_pickle() {
    let patterns: [&[u8]; 9] = [b"]", b"]Na", b"N)R", b"2)R", b"Nb", b"(t", b"N\x85", b"\x8f", b"}q\x01h\x01h\x01s"];
    for pattern in patterns {
        let mut pickle = b"cm\nn\n)R".to_vec();
        while pickle.len() < 1 << 20 {
            pickle.extend(pattern);
        }
        pickle.push(b'.');
        let (graph, _) = read(&pickle).unwrap();
        let factor = graph.memory() / pickle.len();
        assert!(factor <= Graph::BYTES_PER_PICKLE_BYTE, "{factor} bytes per byte of {pattern:?}");
    }
}

#[test]
fn a_huge_memo_number_costs_nothing() {
    let (graph, root) = read(b"K\x07r\xff\xff\xff\xff0j\xff\xff\xff\xff.").unwrap();
    assert_eq!(graph.node(root), Node::Int(7));
}
