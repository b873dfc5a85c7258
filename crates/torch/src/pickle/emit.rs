//! Writing a pickle: protocol 2, the opcodes that `weights_only=True` takes.

use super::opcode as op;

/// A pickle under way.
#[derive(Debug)]
pub(crate) struct Emitter {
    bytes: Vec<u8>,
}

impl Emitter {
    pub(crate) fn new() -> Emitter {
        Emitter { bytes: vec![op::PROTO, 2] }
    }

    /// The whole pickle.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(op::STOP);
        self.bytes
    }

    pub(crate) fn op(&mut self, opcode: u8) {
        self.bytes.push(opcode);
    }

    pub(crate) fn bool(&mut self, truth: bool) {
        self.op(if truth { op::NEWTRUE } else { op::NEWFALSE });
    }

    pub(crate) fn int(&mut self, int: i64) {
        if let Ok(int) = u8::try_from(int) {
            self.bytes.extend([op::BININT1, int]);
        } else if let Ok(int) = u16::try_from(int) {
            self.op(op::BININT2);
            self.bytes.extend(int.to_le_bytes());
        } else if let Ok(int) = i32::try_from(int) {
            self.op(op::BININT);
            self.bytes.extend(int.to_le_bytes());
        } else {
            let bytes = int.to_le_bytes();
            let sign = if int < 0 { 0xff } else { 0 };
            let repeats = |pair: &[u8]| pair[1] == sign && (pair[0] ^ sign) < 0x80;
            let mut len = bytes.len();
            while len > 1 && repeats(&bytes[len - 2..len]) {
                len -= 1;
            }
            self.bytes.extend([op::LONG1, len as u8]);
            self.bytes.extend(&bytes[..len]);
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        // Every number of a layout fits into 63 bits.
        self.int(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn float(&mut self, float: f64) {
        self.op(op::BINFLOAT);
        self.bytes.extend(float.to_be_bytes());
    }

    /// An integer of more than 64 bits: two's complement, low byte first.
    pub(crate) fn long(&mut self, digits: &[u8]) {
        match u8::try_from(digits.len()) {
            Ok(len) => self.bytes.extend([op::LONG1, len]),
            Err(_) => {
                self.op(op::LONG4);
                self.bytes.extend((digits.len() as u32).to_le_bytes());
            }
        }
        self.bytes.extend(digits);
    }

    /// Text; UTF-8, where lone surrogates may occur.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match u32::try_from(text.len()) {
            Ok(len) => {
                self.op(op::BINUNICODE);
                self.bytes.extend(len.to_le_bytes());
            }
            Err(_) => {
                self.op(op::BINUNICODE8);
                self.bytes.extend((text.len() as u64).to_le_bytes());
            }
        }
        self.bytes.extend(text);
    }

    /// A string of Python 2.
    pub(crate) fn old_string(&mut self, text: &[u8]) {
        match u8::try_from(text.len()) {
            Ok(len) => self.bytes.extend([op::SHORT_BINSTRING, len]),
            Err(_) => {
                self.op(op::BINSTRING);
                self.bytes.extend((text.len() as u32).to_le_bytes());
            }
        }
        self.bytes.extend(text);
    }

    /// Bytes, for which protocol 2 has no opcode: a call that encodes text of the same code points.
    pub(crate) fn byte_string(&mut self, bytes: &[u8]) {
        self.global(b"_codecs", b"encode");
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        self.text(text.as_bytes());
        self.text(b"latin1");
        self.op(op::TUPLE2);
        self.op(op::REDUCE);
    }

    pub(crate) fn put(&mut self, number: u32) {
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([op::BINPUT, number]),
            Err(_) => {
                self.op(op::LONG_BINPUT);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    pub(crate) fn get(&mut self, number: u32) {
        match u8::try_from(number) {
            Ok(number) => self.bytes.extend([op::BINGET, number]),
            Err(_) => {
                self.op(op::LONG_BINGET);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    /// The name of a class or function. Names of nested classes need protocol 4.
    pub(crate) fn global(&mut self, module: &[u8], name: &[u8]) {
        if name.contains(&b'.') || [module, name].concat().contains(&b'\n') {
            self.bytes[1] = 4;
            self.text(module);
            self.text(name);
            return self.op(op::STACK_GLOBAL);
        }
        self.op(op::GLOBAL);
        for part in [module, name] {
            self.bytes.extend(part);
            self.bytes.push(b'\n');
        }
    }

    /// A tuple of numbers.
    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        let end = match numbers.len() {
            0 => return self.op(op::EMPTY_TUPLE),
            1 => op::TUPLE1,
            2 => op::TUPLE2,
            3 => op::TUPLE3,
            _ => op::TUPLE,
        };
        if end == op::TUPLE {
            self.op(op::MARK);
        }
        numbers.iter().for_each(|&number| self.number(number));
        self.op(end);
    }

    /// `OrderedDict()`.
    pub(crate) fn ordered_dict(&mut self) {
        self.global(b"collections", b"OrderedDict");
        self.op(op::EMPTY_TUPLE);
        self.op(op::REDUCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::{Node, parse};
    use weightlift_core::Limits;

    #[test]
    fn integers_are_as_short_as_they_can_be() {
        let ints = [0, 255, 256, 65535, 65536, -1, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 31, -(1 << 31) - 1];
        let lens = [2, 2, 3, 3, 5, 5, 5, 5, 7, 7];
        for (int, len) in ints.into_iter().zip(lens).chain([(i64::MAX, 10), (i64::MIN, 10), (1 << 39, 8)]) {
            let mut emitter = Emitter::new();
            emitter.int(int);
            let bytes = emitter.finish();
            assert_eq!(bytes.len(), len + 3, "{int}");
            let (graph, root) = parse(bytes, &Limits::default()).unwrap();
            assert_eq!(graph.node(root), Node::Int(int));
        }
    }
}
