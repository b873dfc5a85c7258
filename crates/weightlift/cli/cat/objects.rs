//! `cat --objects`: what stands around the tensors.

use crate::cli::show;
use serde_json::{Map, Value, json};
use std::io::Write;
use weightlift::Opened;
use weightlift_core::{Key, Object, ObjectValue};

/// A sequence of at most so many plain values is shown on one line.
const INLINE: usize = 16;

/// Prints the objects as an indented tree; what holds nothing but tensors is one line.
pub(super) fn print(opened: &Opened, out: &mut dyn Write) -> anyhow::Result<()> {
    let objects = opened.checkpoint().objects();
    if objects.is_empty() {
        for line in &opened.catalog().beside {
            writeln!(out, "{}", show::plain(line))?;
        }
        return Ok(());
    }
    let folded = Folded::of(&objects);
    let mut at = 0;
    while let Some(object) = objects.get(at) {
        let below = folded.ends[at] - at - 1;
        let (text, shown) = folded.line(&objects, at);
        let key = object.key.as_ref().map_or(String::new(), |key| format!("{}: ", show::plain(&key.to_string())));
        writeln!(out, "{}{key}{text}", "  ".repeat(object.depth))?;
        at += if shown { 1 } else { 1 + below };
    }
    Ok(())
}

/// Prints the objects as JSON.
pub(super) fn print_json(opened: &Opened, out: &mut dyn Write) -> anyhow::Result<()> {
    let value = json!({
        "schema": "weightlift.objects/1",
        "path": opened.path().display().to_string(),
        "objects": nested(&opened.checkpoint().objects()),
        "beside": opened.catalog().beside,
    });
    serde_json::to_writer_pretty(&mut *out, &value)?;
    Ok(writeln!(out)?)
}

/// What stands below each object.
struct Folded {
    /// The first object that does not.
    ends: Vec<usize>,
    tensors: Vec<usize>,
    /// Whether there is something else than tensors and what holds them.
    others: Vec<bool>,
}

impl Folded {
    fn of(objects: &[Object]) -> Folded {
        let count = objects.len();
        let mut folded = Folded { ends: vec![count; count], tensors: vec![0; count], others: vec![false; count] };
        let mut open: Vec<usize> = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            while open.last().is_some_and(|&last| objects[last].depth >= object.depth) {
                folded.close(&mut open, at);
            }
            folded.tensors[at] = usize::from(matches!(object.value, ObjectValue::Tensor(_)));
            let container = matches!(object.value, ObjectValue::Keyed(..) | ObjectValue::Sequence(..));
            folded.others[at] = folded.tensors[at] == 0 && !container;
            open.push(at);
        }
        while !open.is_empty() {
            folded.close(&mut open, count);
        }
        folded
    }

    fn close(&mut self, open: &mut Vec<usize>, end: usize) {
        let Some(at) = open.pop() else { return };
        self.ends[at] = end;
        if let Some(&holder) = open.last() {
            self.tensors[holder] += self.tensors[at];
            self.others[holder] |= self.others[at];
        }
    }

    /// The words for an object, and whether what it holds is shown below it.
    fn line(&self, objects: &[Object], at: usize) -> (String, bool) {
        let object = &objects[at];
        let (class, count, keyed) = match &object.value {
            ObjectValue::Keyed(class, count) => (class, *count, true),
            ObjectValue::Sequence(class, count) => (class, *count, false),
            value => return (plain(value), true),
        };
        let class = show::plain(class);
        let below = &objects[at + 1..self.ends[at]];
        let is_plain = |object: &Object| {
            let long = matches!(&object.value, ObjectValue::Text(text) if text.len() > 40);
            !long
                && !matches!(object.value, ObjectValue::Keyed(..) | ObjectValue::Sequence(..) | ObjectValue::Tensor(_))
        };
        if !keyed && count <= INLINE && below.iter().all(is_plain) {
            let words: Vec<String> = below.iter().map(|object| plain(&object.value)).collect();
            let class = if class == "list" { String::new() } else { class + " " };
            return (format!("{class}[{}]", words.join(", ")), false);
        }
        if self.tensors[at] > 0 && !self.others[at] {
            return (format!("{class}, {}", show::count(self.tensors[at], "tensor")), false);
        }
        (format!("{class} of {count}"), true)
    }
}

fn plain(value: &ObjectValue) -> String {
    match value {
        ObjectValue::None => "None".into(),
        ObjectValue::Bool(true) => "True".into(),
        ObjectValue::Bool(false) => "False".into(),
        ObjectValue::Int(int) => int.to_string(),
        ObjectValue::Long(digits) => digits.clone(),
        ObjectValue::Float(float) if float.is_nan() => "nan".into(),
        ObjectValue::Float(float) => format!("{float:?}"),
        ObjectValue::Text(text) => format!("'{}'", show::plain(text)),
        ObjectValue::Bytes(bytes) => show::count(bytes.len(), "byte"),
        ObjectValue::Tensor(_) => "a tensor".into(),
        ObjectValue::Same(path) if path.is_empty() => "the outermost object again".into(),
        ObjectValue::Same(path) => format!("the same as {}", show::plain(path)),
        ObjectValue::Keyed(text, _) | ObjectValue::Sequence(text, _) | ObjectValue::Other(text) => show::plain(text),
    }
}

/// A container being filled.
struct Open {
    depth: usize,
    key: Option<Key>,
    class: String,
    keyed: bool,
    items: Vec<(Option<Key>, Value)>,
}

/// The nested form of a list of objects.
fn nested(objects: &[Object]) -> Value {
    let mut open = vec![Open { depth: 0, key: None, class: String::new(), keyed: false, items: Vec::new() }];
    for Object { depth, key, value } in objects {
        close(&mut open, depth + 1);
        let (class, keyed) = match value {
            ObjectValue::Keyed(class, _) => (class.clone(), true),
            ObjectValue::Sequence(class, _) => (class.clone(), false),
            value => {
                let value = simple(value);
                if let Some(last) = open.last_mut() {
                    last.items.push((key.clone(), value));
                }
                continue;
            }
        };
        open.push(Open { depth: depth + 1, key: key.clone(), class, keyed, items: Vec::new() });
    }
    close(&mut open, 1);
    open.pop().and_then(|mut outermost| outermost.items.pop()).map_or(Value::Null, |(_, value)| value)
}

/// Closes what is as deep as `depth` or deeper.
fn close(open: &mut Vec<Open>, depth: usize) {
    while let Some(Open { key, class, keyed, items, .. }) = open.pop_if(|last| last.depth >= depth) {
        let value = contained(&class, keyed, items);
        if let Some(holder) = open.last_mut() {
            holder.items.push((key, value));
        }
    }
}

fn contained(class: &str, keyed: bool, items: Vec<(Option<Key>, Value)>) -> Value {
    let text = |key: &Option<Key>| matches!(key, Some(Key::Text(text)) if !text.starts_with('$'));
    let inner = if !keyed {
        Value::Array(items.into_iter().map(|(_, value)| value).collect())
    } else if items.iter().all(|(key, _)| text(key)) {
        let pairs = items.into_iter().filter_map(|(key, value)| Some((key?.to_string(), value)));
        Value::Object(pairs.collect::<Map<String, Value>>())
    } else {
        let pair = |(key, value): (Option<Key>, Value)| json!([key.as_ref().map_or(Value::Null, key_to_json), value]);
        json!({"$dict": items.into_iter().map(pair).collect::<Vec<_>>()})
    };
    match class {
        "dict" | "list" => inner,
        "tuple" | "set" | "frozenset" => json!({format!("${class}"): inner}),
        class => json!({"$class": class, "value": inner}),
    }
}

fn key_to_json(key: &Key) -> Value {
    match key {
        Key::Text(text) => json!(text),
        Key::Int(int) => json!(int),
        Key::Index(index) => json!(index),
        Key::Other(text) => json!({"$other": text}),
    }
}

fn simple(value: &ObjectValue) -> Value {
    /// Beyond, numbers of JSON are not exact everywhere.
    const EXACT: u64 = 1 << 53;
    match value {
        ObjectValue::None => Value::Null,
        ObjectValue::Bool(truth) => json!(truth),
        ObjectValue::Int(int) if int.unsigned_abs() <= EXACT => json!(int),
        ObjectValue::Int(int) => json!({"$int": int.to_string()}),
        ObjectValue::Long(digits) => json!({"$int": digits}),
        ObjectValue::Float(float) if float.is_finite() => json!(float),
        ObjectValue::Float(float) if float.is_nan() => json!({"$float": "NaN"}),
        ObjectValue::Float(float) => json!({"$float": if *float > 0.0 { "Infinity" } else { "-Infinity" }}),
        ObjectValue::Text(text) => json!(text),
        ObjectValue::Bytes(bytes) => {
            json!({"$bytes": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
        }
        ObjectValue::Tensor(name) => json!({"$tensor": name}),
        ObjectValue::Same(path) => json!({"$same": path}),
        ObjectValue::Keyed(text, _) | ObjectValue::Sequence(text, _) | ObjectValue::Other(text) => {
            json!({"$other": text})
        }
    }
}
