//! The stack machine.

use super::graph::{EMPTY, Edit, Graph, Make, Node, NodeId, Span};
use super::input::{Cursor, Input, Nothing};
use super::literal::{self, Integer};
use super::memo::Memo;
use super::opcode as op;
use weightlift_core::{Error, Limits, Result};

/// Reads one pickle that is in memory as a whole. Nothing is imported, nothing is called.
///
/// # Errors
/// `Malformed` with the offset in the pickle where it breaks the rules; `Limit` beyond [`Limits::header_bytes`].
///
/// ```
/// use weightlift_core::Limits;
/// use weightlift_torch::pickle::{Node, parse};
/// let (graph, root) = parse(b"cos\nsystem\n(S'rm -rf'\ntR.".to_vec(), &Limits::default()).unwrap();
/// let object = graph.object(root).unwrap();
/// assert_eq!(graph.dotted(object.callable).unwrap(), "os.system");
/// ```
pub fn parse(pickle: Vec<u8>, limits: &Limits) -> Result<(Graph, NodeId)> {
    let mut machine = Machine::new(pickle, Nothing, limits, Some(0));
    let root = machine.load()?;
    Ok((machine.finish(), root))
}

/// A machine that can read several pickles, one after the other, into one graph.
#[derive(Debug)]
pub(crate) struct Machine<I> {
    graph: Graph,
    cursor: Cursor<I>,
    stack: Vec<NodeId>,
    marks: Vec<usize>,
    memo: Memo,
    none: NodeId,
    truths: [NodeId; 2],
    empty: NodeId,
}

/// What an opcode failed with: a message to be placed.
type Step<T = ()> = std::result::Result<T, Error>;

fn wrong<T>(message: impl Into<String>) -> Step<T> {
    Err(Error::malformed(message))
}

impl<I: Input> Machine<I> {
    /// A machine over `bytes` and what `input` appends to them. `base` is their place in the file, for messages.
    pub(crate) fn new(bytes: Vec<u8>, input: I, limits: &Limits, base: Option<u64>) -> Machine<I> {
        let mut graph = Graph::of(bytes);
        let mut first = |node| graph.add(node).unwrap_or(NodeId::NOWHERE);
        let (none, falsehood, truth) = (first(Node::None), first(Node::Bool(false)), first(Node::Bool(true)));
        let nothing = graph.add_items(&[]).and_then(|items| graph.add(Node::Tuple(items)));
        Machine {
            graph,
            cursor: Cursor::new(input, limits.header_bytes, base),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            none,
            truths: [falsehood, truth],
            empty: nothing.unwrap_or(NodeId::NOWHERE),
        }
    }

    /// Reads the next pickle.
    pub(crate) fn load(&mut self) -> Result<NodeId> {
        self.memo.clear();
        self.stack.clear();
        self.marks.clear();
        loop {
            let at = self.cursor.at;
            let [opcode] = self.cursor.array(&mut self.graph.bytes)?;
            if opcode == op::STOP {
                // Like Python, what else stands on the stack is of no interest.
                return self.pop().map_err(|error| self.cursor.place(error, at));
            }
            self.step(opcode).map_err(|error| self.cursor.place(error, at))?;
        }
    }

    /// How many bytes the pickles read so far have.
    pub(crate) fn position(&self) -> u64 {
        self.cursor.at as u64
    }

    /// The graph so far.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph.
    pub(crate) fn finish(self) -> Graph {
        self.graph
    }

    fn step(&mut self, opcode: u8) -> Step {
        match opcode {
            op::PROTO => self.proto(),
            op::FRAME => self.frame(),
            op::MARK | op::POP | op::POP_MARK | op::DUP => self.shuffle(opcode),
            op::NONE | op::NEWTRUE | op::NEWFALSE | op::EMPTY_TUPLE => self.constant(opcode),
            op::BININT | op::BININT1 | op::BININT2 | op::LONG1 | op::LONG4 | op::BINFLOAT => self.number(opcode),
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE => self.literal(opcode),
            op::BINUNICODE | op::SHORT_BINUNICODE | op::BINUNICODE8 => self.text(opcode),
            op::BINSTRING | op::SHORT_BINSTRING => self.text(opcode),
            op::BINBYTES | op::SHORT_BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => self.text(opcode),
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.put(opcode),
            op::GET | op::BINGET | op::LONG_BINGET => self.get(opcode),
            op::EMPTY_LIST | op::EMPTY_DICT | op::EMPTY_SET => self.empty(opcode),
            op::TUPLE | op::TUPLE1 | op::TUPLE2 | op::TUPLE3 | op::FROZENSET => self.tuple(opcode),
            op::LIST | op::DICT => self.collect(opcode),
            op::APPEND | op::APPENDS | op::SETITEM | op::SETITEMS | op::ADDITEMS => self.extend(opcode),
            op::GLOBAL | op::STACK_GLOBAL => self.global(opcode),
            op::REDUCE | op::NEWOBJ | op::NEWOBJ_EX | op::INST | op::OBJ => self.make(opcode),
            op::BUILD => self.build(),
            op::PERSID | op::BINPERSID => self.persistent(opcode),
            op::EXT1 | op::EXT2 | op::EXT4 => self.extension(opcode),
            op::NEXT_BUFFER | op::READONLY_BUFFER => {
                Err(Error::unsupported("the pickle refers to buffers that are kept outside of it"))
            }
            _ => wrong(format!("{opcode:#04x} is no pickle opcode")),
        }
    }

    fn push(&mut self, node: Node) -> Step {
        let id = self.graph.add(node)?;
        self.stack.push(id);
        Ok(())
    }

    /// The topmost value above the last mark.
    fn top(&self) -> Step<NodeId> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.last() {
            Some(&top) if self.stack.len() > floor => Ok(top),
            _ => wrong("the pickle takes a value from an empty stack"),
        }
    }

    fn pop(&mut self) -> Step<NodeId> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Where the values above the last mark start. The mark is taken away.
    fn mark(&mut self) -> Step<usize> {
        match self.marks.pop() {
            Some(mark) => Ok(mark),
            None => wrong("the pickle refers to a mark that was never set"),
        }
    }

    fn above_mark(&mut self) -> Step<Vec<NodeId>> {
        let mark = self.mark()?;
        Ok(self.stack.split_off(mark))
    }

    fn proto(&mut self) -> Step {
        match self.cursor.array(&mut self.graph.bytes)? {
            [0..=5] => Ok(()),
            [version] => Err(Error::unsupported(format!("pickle protocol {version}; 0 to 5 are known"))),
        }
    }

    fn frame(&mut self) -> Step {
        // A frame only says how much to read ahead.
        self.cursor.array::<8>(&mut self.graph.bytes).map(drop)
    }

    fn shuffle(&mut self, opcode: u8) -> Step {
        match opcode {
            op::MARK => self.marks.push(self.stack.len()),
            op::POP_MARK => drop(self.above_mark()?),
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
            }
            // POP on a mark takes the mark away.
            _ if self.top().is_ok() => drop(self.stack.pop()),
            _ => drop(self.mark()?),
        }
        Ok(())
    }

    fn constant(&mut self, opcode: u8) -> Step {
        self.stack.push(match opcode {
            op::NONE => self.none,
            op::NEWFALSE => self.truths[0],
            op::NEWTRUE => self.truths[1],
            _ => self.empty,
        });
        Ok(())
    }

    fn number(&mut self, opcode: u8) -> Step {
        let (cursor, bytes) = (&mut self.cursor, &mut self.graph.bytes);
        let int = match opcode {
            op::BININT => i64::from(i32::from_le_bytes(cursor.array(bytes)?)),
            op::BININT1 => i64::from(u8::from_le_bytes(cursor.array(bytes)?)),
            op::BININT2 => i64::from(u16::from_le_bytes(cursor.array(bytes)?)),
            op::BINFLOAT => {
                let float = f64::from_be_bytes(cursor.array(bytes)?);
                return self.push(Node::Float(float));
            }
            _ => return self.long(opcode),
        };
        self.push(Node::Int(int))
    }

    fn long(&mut self, opcode: u8) -> Step {
        let (cursor, bytes) = (&mut self.cursor, &mut self.graph.bytes);
        let len = match opcode {
            op::LONG1 => i64::from(u8::from_le_bytes(cursor.array(bytes)?)),
            _ => i64::from(i32::from_le_bytes(cursor.array(bytes)?)),
        };
        let Ok(len) = u64::try_from(len) else { return wrong(format!("an integer of {len} bytes")) };
        let start = cursor.take(bytes, len)?;
        let digits = &bytes[start..start + len as usize];
        if digits.len() > 8 {
            return self.push(Node::Long(Graph::span_at(start, len as usize)));
        }
        let sign = if digits.last().is_some_and(|&last| last >= 0x80) { 0xff } else { 0 };
        let mut int = [sign; 8];
        int[..digits.len()].copy_from_slice(digits);
        self.push(Node::Int(i64::from_le_bytes(int)))
    }

    fn line(&mut self) -> Step<(usize, usize)> {
        self.cursor.line(&mut self.graph.bytes)
    }

    fn literal(&mut self, opcode: u8) -> Step {
        let (start, len) = self.line()?;
        let line = &self.graph.bytes[start..start + len];
        let node = match opcode {
            op::INT if line == b"00" => Some(Node::Bool(false)),
            op::INT if line == b"01" => Some(Node::Bool(true)),
            op::FLOAT => literal::float(line).map(Node::Float),
            op::STRING => literal::quoted(line).map(|text| Node::OldString(self.graph.add_decoded(&text))),
            op::UNICODE => literal::raw_unicode(line).map(|text| Node::Text(self.graph.add_decoded(&text))),
            _ => literal::integer(line).map(|integer| match integer {
                Integer::Short(int) => Node::Int(int),
                Integer::Long(digits) => Node::Long(self.graph.add_decoded(&digits)),
            }),
        };
        match node {
            Some(node) => self.push(node),
            None => {
                let line = String::from_utf8_lossy(&self.graph.bytes[start..start + len.min(40)]).into_owned();
                wrong(format!("{line:?} is no literal of opcode {:?}", char::from(opcode)))
            }
        }
    }

    fn text(&mut self, opcode: u8) -> Step {
        let (cursor, bytes) = (&mut self.cursor, &mut self.graph.bytes);
        let len = match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINBYTES | op::SHORT_BINSTRING => {
                u64::from(u8::from_le_bytes(cursor.array(bytes)?))
            }
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => u64::from_le_bytes(cursor.array(bytes)?),
            op::BINUNICODE | op::BINBYTES => u64::from(u32::from_le_bytes(cursor.array(bytes)?)),
            _ => match u64::try_from(i32::from_le_bytes(cursor.array(bytes)?)) {
                Ok(len) => len,
                Err(_) => return wrong("a string of negative length"),
            },
        };
        let start = cursor.take(bytes, len)?;
        let span = Graph::span_at(start, len as usize);
        self.push(match opcode {
            op::BINUNICODE | op::SHORT_BINUNICODE | op::BINUNICODE8 => Node::Text(span),
            op::BINSTRING | op::SHORT_BINSTRING => Node::OldString(span),
            op::BYTEARRAY8 => Node::ByteArray(span),
            _ => Node::Bytes(span),
        })
    }

    fn memo_number(&mut self, opcode: u8) -> Step<u64> {
        let (cursor, bytes) = (&mut self.cursor, &mut self.graph.bytes);
        Ok(match opcode {
            op::BINPUT | op::BINGET => u64::from(u8::from_le_bytes(cursor.array(bytes)?)),
            op::LONG_BINPUT | op::LONG_BINGET => u64::from(u32::from_le_bytes(cursor.array(bytes)?)),
            op::MEMOIZE => self.memo.len(),
            _ => {
                let (start, len) = self.line()?;
                let line = &self.graph.bytes[start..start + len];
                match std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok()) {
                    Some(number) => number,
                    None => return wrong("a memo number that is no number"),
                }
            }
        })
    }

    fn put(&mut self, opcode: u8) -> Step {
        let number = self.memo_number(opcode)?;
        let top = self.top()?;
        self.memo.put(number, top);
        Ok(())
    }

    fn get(&mut self, opcode: u8) -> Step {
        let number = self.memo_number(opcode)?;
        match self.memo.get(number) {
            Some(id) => self.stack.push(id),
            None => return wrong(format!("memo number {number} was never set")),
        }
        Ok(())
    }

    fn empty(&mut self, opcode: u8) -> Step {
        self.push(match opcode {
            op::EMPTY_LIST => Node::List(EMPTY),
            op::EMPTY_DICT => Node::Dict(EMPTY),
            _ => Node::Set(EMPTY),
        })
    }

    fn tuple(&mut self, opcode: u8) -> Step {
        let start = match opcode {
            op::TUPLE | op::FROZENSET => self.mark()?,
            _ => {
                let count = usize::from(opcode - op::TUPLE1 + 1);
                let floor = self.marks.last().copied().unwrap_or(0);
                match self.stack.len().checked_sub(count) {
                    Some(start) if start >= floor => start,
                    _ => return wrong(format!("the pickle makes a tuple of {count} from fewer values")),
                }
            }
        };
        let items = self.graph.add_items(&self.stack[start..])?;
        self.stack.truncate(start);
        self.push(if opcode == op::FROZENSET { Node::FrozenSet(items) } else { Node::Tuple(items) })
    }

    /// LIST and DICT of protocol 0: the container made from what stands above the mark.
    fn collect(&mut self, opcode: u8) -> Step {
        let items = self.above_mark()?;
        if opcode == op::DICT && items.len() % 2 == 1 {
            return wrong("a dict is made from a key without a value");
        }
        self.push(if opcode == op::DICT { Node::Dict(EMPTY) } else { Node::List(EMPTY) })?;
        let container = self.top()?;
        self.graph.grow(container, &items)
    }

    /// Puts values into a container, or writes down that Python would do so to an object.
    fn extend(&mut self, opcode: u8) -> Step {
        let items = match opcode {
            op::APPEND => vec![self.pop()?],
            op::SETITEM => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.above_mark()?,
        };
        let pairs = matches!(opcode, op::SETITEM | op::SETITEMS);
        if pairs && items.len() % 2 == 1 {
            return wrong("a key is set without a value");
        }
        let container = self.top()?;
        match (self.graph.node(container), opcode) {
            (Node::List(_), op::APPEND | op::APPENDS) | (Node::Set(_), op::ADDITEMS) => {}
            (Node::Dict(_), _) if pairs => {}
            (Node::Object(_), _) => {
                let edit = match opcode {
                    op::APPEND | op::APPENDS => Edit::Append(items),
                    op::ADDITEMS => Edit::Add(items),
                    _ => Edit::Set(items),
                };
                self.graph.edit(container, edit);
                return Ok(());
            }
            _ => {
                let what = self.graph.describe(container);
                return wrong(format!("opcode {:?} puts a value into {what}", char::from(opcode)));
            }
        }
        self.graph.grow(container, &items)
    }

    fn global(&mut self, opcode: u8) -> Step {
        let (module, name) = if opcode == op::GLOBAL {
            let (module, name) = (self.line()?, self.line()?);
            (Graph::span_at(module.0, module.1), Graph::span_at(name.0, name.1))
        } else {
            let name = self.pop()?;
            let module = self.pop()?;
            (self.name_span(module)?, self.name_span(name)?)
        };
        let id = self.graph.add_global(module, name)?;
        self.stack.push(id);
        Ok(())
    }

    fn name_span(&self, id: NodeId) -> Step<Span> {
        match self.graph.node(id) {
            Node::Text(span) | Node::OldString(span) => Ok(span),
            _ => wrong(format!("a name is {} instead of text", self.graph.describe(id))),
        }
    }

    fn make(&mut self, opcode: u8) -> Step {
        let (make, callable, args) = match opcode {
            op::INST => {
                self.global(op::GLOBAL)?;
                let class = self.pop()?;
                (Make::Call, class, self.marked_tuple()?)
            }
            op::OBJ => {
                let mark = self.marks.last().copied().unwrap_or(0);
                if self.stack.len() <= mark || self.marks.is_empty() {
                    return wrong("an object is made without a class");
                }
                let class = self.stack.remove(mark);
                (Make::Call, class, self.marked_tuple()?)
            }
            op::NEWOBJ_EX => {
                let kwargs = self.pop()?;
                let args = self.pop()?;
                (Make::NewWith(kwargs), self.pop()?, args)
            }
            _ => {
                let args = self.pop()?;
                (if opcode == op::NEWOBJ { Make::New } else { Make::Call }, self.pop()?, args)
            }
        };
        if !matches!(self.graph.node(args), Node::Tuple(_)) {
            return wrong(format!("the arguments of a call are {} instead of a tuple", self.graph.describe(args)));
        }
        let id = self.graph.add_object(make, callable, args)?;
        self.stack.push(id);
        Ok(())
    }

    fn marked_tuple(&mut self) -> Step<NodeId> {
        self.tuple(op::TUPLE)?;
        self.pop()
    }

    fn build(&mut self) -> Step {
        let state = self.pop()?;
        let object = self.top()?;
        match self.graph.node(object) {
            Node::Object(_) => self.graph.edit(object, Edit::State(state)),
            _ => return wrong(format!("a state is given to {}", self.graph.describe(object))),
        }
        Ok(())
    }

    fn persistent(&mut self, opcode: u8) -> Step {
        let id = if opcode == op::PERSID {
            let (start, len) = self.line()?;
            self.graph.add(Node::Text(Graph::span_at(start, len)))?
        } else {
            self.pop()?
        };
        self.push(Node::Persistent(id))
    }

    fn extension(&mut self, opcode: u8) -> Step {
        let (cursor, bytes) = (&mut self.cursor, &mut self.graph.bytes);
        let code = match opcode {
            op::EXT1 => u32::from(u8::from_le_bytes(cursor.array(bytes)?)),
            op::EXT2 => u32::from(u16::from_le_bytes(cursor.array(bytes)?)),
            _ => u32::from_le_bytes(cursor.array(bytes)?),
        };
        self.push(Node::Extension(code))
    }
}
