//! stub
/// What a verification went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Data blocks read.
    pub data_blocks: u64,
    /// Entries decoded.
    pub entries: u64,
    /// Index partitions read.
    pub index_partitions: u64,
    /// Filter partitions read.
    pub filter_partitions: u64,
    /// Bytes of the file covered by checked checksums.
    pub bytes: u64,
}
