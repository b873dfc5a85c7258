//! Values in a few words.

use super::graph::{Graph, Make, Node, NodeId};
use std::fmt::Write;

impl Graph {
    /// A value in a few words: `3`, `'adam'`, `argparse.Namespace`, `list of 4`.
    pub fn describe(&self, id: NodeId) -> String {
        match self.node(id) {
            Node::None => "None".into(),
            Node::Bool(true) => "True".into(),
            Node::Bool(false) => "False".into(),
            Node::Int(int) => int.to_string(),
            Node::Long(digits) => format!("an integer of {} bytes", self.span(digits).len()),
            Node::Float(float) if float.is_nan() => "nan".into(),
            Node::Float(float) => format!("{float:?}"),
            Node::Text(text) | Node::OldString(text) => quoted(self.span(text)),
            Node::Bytes(bytes) => format!("{} bytes", self.span(bytes).len()),
            Node::ByteArray(bytes) => format!("bytearray of {}", self.span(bytes).len()),
            Node::Tuple(_) => self.counted("tuple", id),
            Node::FrozenSet(_) => self.counted("frozenset", id),
            Node::List(_) => self.counted("list", id),
            Node::Set(_) => self.counted("set", id),
            Node::Dict(_) => format!("dict of {}", self.pairs(id).unwrap_or_default().len() / 2),
            Node::Global(_) => self.dotted(id).unwrap_or_default(),
            Node::Object(_) => self.describe_object(id),
            Node::Persistent(_) => "a persistent object".into(),
            Node::Extension(code) => format!("object of extension code {code}"),
        }
    }

    fn counted(&self, what: &str, id: NodeId) -> String {
        format!("{what} of {}", self.items(id).unwrap_or_default().len())
    }

    fn describe_object(&self, id: NodeId) -> String {
        let Some(object) = self.object(id) else { return String::new() };
        let first = self.items(object.args).and_then(|args| args.first()).copied();
        let plain = match (object.make, self.global(object.callable), first) {
            (Make::Call, Some((module, name)), Some(first)) => self.describe_call(module, name, first),
            _ => None,
        };
        plain.unwrap_or_else(|| self.describe_callable(object.callable))
    }

    /// Plain values for which old protocols have no opcode.
    fn describe_call(&self, module: &[u8], name: &[u8], first: NodeId) -> Option<String> {
        match (module, name) {
            (b"_codecs", b"encode") => Some(format!("{} bytes", self.text(first)?.chars().count())),
            (b"builtins" | b"__builtin__", b"set") => Some(format!("set of {}", self.items(first)?.len())),
            (b"builtins" | b"__builtin__", b"frozenset") => Some(format!("frozenset of {}", self.items(first)?.len())),
            (b"builtins" | b"__builtin__", b"bytearray") => {
                let bytes = self.describe(first);
                Some(format!("bytearray of {}", bytes.strip_suffix(" bytes")?))
            }
            _ => None,
        }
    }

    /// The name of a class or function. Legacy files keep a class with its source text outside of the pickle, under
    /// the id `('module', class, file, source)`. A call on the result of a call is only named as such.
    fn describe_callable(&self, id: NodeId) -> String {
        let class = match self.node(id) {
            Node::Persistent(of) => self.items(of).and_then(|fields| fields.get(1)).copied().unwrap_or(id),
            _ => id,
        };
        self.dotted(class).unwrap_or_else(|| "the result of a call on the result of a call".into())
    }
}

/// Text in quotes with control characters escaped; long text is cut.
fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    let mut out = String::from("'");
    for (at, char) in text.chars().enumerate() {
        if at == SHOWN {
            out.push('…');
            break;
        }
        match char {
            '\'' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => drop(write!(out, "{}", char.escape_default())),
            char => out.push(char),
        }
    }
    out + "'"
}
