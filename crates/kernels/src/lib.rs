//! What a number means: casts, byte order, strided copies and checksums, exact on every processor.
