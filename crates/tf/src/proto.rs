//! The protocol buffer messages of a bundle's index and of a version 1 file. Fields that nobody needs here are not
//! declared; they are skipped on reading.

use prost::Message;

/// Value of the empty key: what holds for the whole bundle.
#[derive(Clone, PartialEq, Message)]
pub struct BundleHeader {
    /// How many data files there are.
    #[prost(int32, tag = "1")]
    pub num_shards: i32,
    /// 0 little, 1 big.
    #[prost(int32, tag = "2")]
    pub endianness: i32,
    /// Who may read it.
    #[prost(message, optional, tag = "3")]
    pub version: Option<VersionDef>,
}

/// Which readers a file is for.
#[derive(Clone, PartialEq, Message)]
pub struct VersionDef {
    /// Version of the writer.
    #[prost(int32, tag = "1")]
    pub producer: i32,
    /// Oldest reader that understands the file.
    #[prost(int32, tag = "2")]
    pub min_consumer: i32,
    /// Readers known to misunderstand it.
    #[prost(int32, repeated, tag = "3")]
    pub bad_consumers: Vec<i32>,
}

/// Value of every other key of a bundle: one tensor, or one slice.
#[derive(Clone, PartialEq, Message)]
pub struct BundleEntry {
    /// The DataType number.
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    /// Dimensions; a missing message is a scalar.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
    /// Which data file.
    #[prost(int32, tag = "3")]
    pub shard_id: i32,
    /// First byte in it.
    #[prost(int64, tag = "4")]
    pub offset: i64,
    /// Bytes, padding not counted.
    #[prost(int64, tag = "5")]
    pub size: i64,
    /// Masked CRC-32C.
    #[prost(fixed32, tag = "6")]
    pub crc32c: u32,
    /// The slices of a partitioned tensor, which has no bytes of its own.
    #[prost(message, repeated, tag = "7")]
    pub slices: Vec<TensorSlice>,
}

/// Dimensions of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShape {
    /// Outermost first.
    #[prost(message, repeated, tag = "2")]
    pub dim: Vec<Dim>,
    /// Not valid in a checkpoint.
    #[prost(bool, tag = "3")]
    pub unknown_rank: bool,
}

/// One dimension.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Dim {
    /// Its size; -1 is unknown, which is not valid in a checkpoint.
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// A box of a tensor.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct TensorSlice {
    /// One for each dimension.
    #[prost(message, repeated, tag = "1")]
    pub extent: Vec<Extent>,
}

/// A box along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Extent {
    /// First index.
    #[prost(int64, tag = "1")]
    pub start: i64,
    /// How many; `None` for the whole dimension.
    #[prost(int64, optional, tag = "2")]
    pub length: Option<i64>,
}

/// Value of the empty key of a version 1 file.
#[derive(Clone, PartialEq, Message)]
pub struct SavedTensorSlices {
    /// What the file holds.
    #[prost(message, optional, tag = "1")]
    pub meta: Option<SavedTensorSliceMeta>,
}

/// What a version 1 file holds.
#[derive(Clone, PartialEq, Message)]
pub struct SavedTensorSliceMeta {
    /// Its tensors.
    #[prost(message, repeated, tag = "1")]
    pub tensor: Vec<SavedSliceMeta>,
    /// Who may read it.
    #[prost(message, optional, tag = "2")]
    pub versions: Option<VersionDef>,
}

/// A tensor of a version 1 file.
#[derive(Clone, PartialEq, Message)]
pub struct SavedSliceMeta {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its dimensions; a missing message is a scalar.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
    /// The DataType number.
    #[prost(int32, tag = "3")]
    pub dtype: i32,
    /// The slices of it that this file holds.
    #[prost(message, repeated, tag = "4")]
    pub slice: Vec<TensorSlice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_values_are_left_out_and_unknown_fields_skipped() {
        let version = Some(VersionDef { producer: 1, ..VersionDef::default() });
        let header = BundleHeader { num_shards: 1, endianness: 0, version };
        assert_eq!(header.encode_to_vec(), [0x08, 0x01, 0x1a, 0x02, 0x08, 0x01]);
        let scalar = BundleEntry { dtype: 1, shape: Some(TensorShape::default()), size: 4, ..BundleEntry::default() };
        assert_eq!(scalar.encode_to_vec(), [0x08, 0x01, 0x12, 0x00, 0x28, 0x04]);
        let mut bytes = scalar.encode_to_vec();
        bytes.extend([0xf8, 0x07, 0x05, 0xfa, 0x07, 0x01, 0xff]);
        assert_eq!(BundleEntry::decode(&*bytes).unwrap(), scalar);
        let slice =
            TensorSlice { extent: vec![Extent { start: 0, length: None }, Extent { start: 2, length: Some(3) }] };
        assert_eq!(slice.encode_to_vec(), [0x0a, 0x00, 0x0a, 0x04, 0x08, 0x02, 0x10, 0x03]);
        assert_eq!(TensorShape { dim: vec![Dim { size: 0 }], unknown_rank: false }.encode_to_vec(), [0x12, 0x00]);
    }
}
