//! What the name of a file says about how it is encrypted.

use crate::header::Layout;
use std::path::Path;
use terrace_manifest::names::{self, FileName};

/// How a file is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Read while it grows.
    Growing,
    /// Read once it is whole.
    Whole,
    /// Either: it has its name for a while.
    Temporary,
    /// It has no content, and is not encrypted.
    Empty,
}

impl Kind {
    /// The kind of the file at `path`. What is put aside has the name it had, with an ending.
    pub fn of(path: &Path) -> Self {
        let mut name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let whole = name;
        loop {
            return match names::parse(name) {
                FileName::Log(_) | FileName::Manifest(_) | FileName::Evidence(_) => Self::Growing,
                FileName::Temp => Self::Temporary,
                FileName::Lock | FileName::Readers(_) | FileName::Reserve if name == whole => {
                    Self::Empty
                }
                FileName::Lock | FileName::Readers(_) | FileName::Reserve => Self::Whole,
                FileName::Current | FileName::Sst(_) | FileName::ValueLog(_) => Self::Whole,
                FileName::Other => match name.rsplit_once('.') {
                    Some((before, _)) => {
                        name = before;
                        continue;
                    }
                    None => Self::Whole,
                },
            };
        }
    }

    /// Whether a file of this kind may have this layout.
    pub fn allows(self, layout: Layout) -> bool {
        match self {
            Self::Growing => layout == Layout::Frames,
            Self::Whole => layout == Layout::Pages,
            Self::Temporary | Self::Empty => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_kind() {
        let of = |name: &str| Kind::of(&Path::new("/db").join(name));
        for name in [
            "000012.log",
            "MANIFEST-000003",
            "SYNCED-2",
            "000012.log.1",
            "MANIFEST-000003.damaged.2",
        ] {
            assert_eq!(of(name), Kind::Growing, "{name}");
        }
        for name in [
            "CURRENT",
            "000012.sst",
            "000012.vlog",
            "000012.sst.damaged",
            "0a1b-77",
            "7",
            "x.log",
            "REPORT",
            "REPORT.1",
        ] {
            assert_eq!(of(name), Kind::Whole, "{name}");
        }
        assert_eq!((of("LOCK.sst"), of("RESERVE.1")), (Kind::Whole, Kind::Whole));
        assert_eq!((of("000012.tmp"), of("CURRENT.tmp")), (Kind::Temporary, Kind::Temporary));
        assert_eq!(
            (of("LOCK"), of("READERS-000001"), of("RESERVE")),
            (Kind::Empty, Kind::Empty, Kind::Empty)
        );
    }
}
