//! Files of the operating system, positional sources and sinks, and commits of whole sets of files.
