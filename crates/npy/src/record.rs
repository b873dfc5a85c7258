//! What an array was before it was written in a form that NumPy knows: a remark beside it, invisible to NumPy.

use crate::descr::Descr;
use weightlift_core::{Class, DType, Entry};

const WORD: &str = "weightlift: ";
const WAS: &str = "was ";

/// What is recorded of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// Its bytes are elements of this type, whatever the header calls them.
    Is(DType),
    /// Its values were widened from this type.
    Was(DType),
}

impl Record {
    /// As text.
    pub(crate) fn text(self) -> String {
        match self {
            Record::Is(dtype) => format!("{WORD}{dtype}"),
            Record::Was(dtype) => format!("{WORD}{WAS}{dtype}"),
        }
    }

    /// From text; `None` for any other.
    pub(crate) fn parse(text: &str) -> Option<Record> {
        let text = text.strip_prefix(WORD)?;
        match text.strip_prefix(WAS) {
            Some(dtype) => dtype.parse().ok().map(Record::Was),
            None => text.parse().ok().map(Record::Is),
        }
    }

    /// The elements of an array with this record: where the sizes agree, and the header has bits without a meaning.
    pub(crate) fn applied(self, descr: Descr) -> Descr {
        let Record::Is(dtype) = self else { return descr };
        let same_size = dtype.bits().map(u64::from) == descr.size().checked_mul(8);
        match descr {
            Descr::Plain(bits, order) if same_size && bits.class() == Class::UInt => Descr::Plain(dtype, order),
            Descr::Raw { ref code, .. } if same_size && code.contains('V') => {
                Descr::Plain(dtype, weightlift_core::ByteOrder::Little)
            }
            other => other,
        }
    }

    /// Says in a listing what was recorded.
    pub(crate) fn remark(self, entry: &mut Entry) {
        if let Record::Was(dtype) = self {
            entry.remarks.push(format!("widened from {dtype}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::ByteOrder;

    #[test]
    fn records_are_read_back_and_apply_to_bits_of_their_size() {
        for record in [Record::Is(DType::Bf16), Record::Was(DType::F8E4m3fn)] {
            assert_eq!(Record::parse(&record.text()), Some(record));
        }
        for odd in ["", "bf16", "weightlift: ", "weightlift: nothing", "weightlift: was"] {
            assert_eq!(Record::parse(odd), None);
        }
        let is = |code: &str| Record::Is(DType::Bf16).applied(Descr::parse(code));
        let bf16 = |order| Descr::Plain(DType::Bf16, order);
        assert_eq!(
            (is("<u2"), is(">u2"), is("|V2")),
            (bf16(ByteOrder::Little), bf16(ByteOrder::Big), bf16(ByteOrder::Little))
        );
        for other in ["<u4", "<i2", "<f2", "|S2", "|V4", "|O"] {
            assert_eq!(is(other), Descr::parse(other));
        }
    }
}
