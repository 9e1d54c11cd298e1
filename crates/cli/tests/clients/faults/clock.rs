//! The wall clock of processes, as the test sets it: a small library that is loaded before the C library (`clock.c`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// Compiles the library into a folder.
    pub fn compile(folder: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/faults/clock.c");
        let (library, offset) = (folder.join("clock.so"), folder.join("clock.offset"));
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(compile.status().expect("start cc").success());
        let clock = Self { library, offset };
        clock.set(0);
        clock
    }

    /// Off by this many seconds, from now on.
    pub fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        let mut options = std::fs::OpenOptions::new();
        // In place: processes have it mapped.
        let file = options.create(true).truncate(false).write(true).open(&self.offset).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// What a process is started with.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("CLOCK_OFFSET_FILE", self.offset.clone())]
    }
}
