//! The file system that encrypts.

use crate::frames::{self, FramesFile, FramesWriter};
use crate::header::{self, Found, HEADER_BYTES, Layout};
use crate::keys::KeyRing;
use crate::kind::Kind;
use crate::pages::{PagesFile, PagesWriter, Span, content_len};
use crate::shared_ring::{SharedRing, Use};
use ring::aead::LessSafeKey;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile, ReadRequest, SyncHandle, Vfs};

/// A file system over `below` in which the content of every file is encrypted; see [the crate](crate).
///
/// Files are created with the active key of the ring and read with whichever key they name. Lengths, and offsets of
/// reads and appends, are those of the content. A file has 128 bytes more below, and 16 more for each 4,096 bytes, or, if
/// it is read while it grows, 26 more for each append and each 4,096 bytes. Nothing is preallocated for files that grow.
///
/// By their names in a store, log segments, manifests and the evidence of what was synced are read while they grow, and
/// no other file is ever taken for such a one: its end is not authentic. Files whose names say that they have no
/// content (`LOCK`, `READERS-*`, `RESERVE`) are as they are below.
///
/// What is not what was written is an error of a read, and damage for those who read around it
/// ([`RandomFile::read_around_damage`]); of a file that grows and whose header is damaged, everything. The log's own
/// evidence says whether something is lost.
///
/// A clone shares the keys, also those that [`Self::set_keys`] puts in their place.
#[derive(Clone)]
pub struct EncryptedVfs {
    below: Arc<dyn Vfs>,
    keys: Arc<SharedRing>,
    accepts_plain: bool,
}

impl EncryptedVfs {
    /// Encrypts what `below` stores. Files that are not encrypted are refused.
    pub fn new(below: Arc<dyn Vfs>, keys: KeyRing) -> Self {
        Self { below, keys: Arc::new(SharedRing::new(keys)), accepts_plain: false }
    }

    /// As [`Self::new`], but files that are not encrypted are read as they are. For conversions only: who can write to
    /// the disk can then replace any file by one of their own.
    pub(crate) fn accepting_plain(below: Arc<dyn Vfs>, keys: KeyRing) -> Self {
        Self { below, keys: Arc::new(SharedRing::new(keys)), accepts_plain: true }
    }

    /// The keys as they are now.
    pub fn keys(&self) -> Arc<KeyRing> {
        self.keys.keys()
    }

    /// Replaces the keys of this file system and its clones while the store in `dir` is open on them: from now on files are
    /// created with the active key of `keys`, and files are opened with those that they name. What is open stays so. Reads
    /// and opens do not wait.
    ///
    /// # Errors
    /// `Unsupported`, and nothing has changed, if `keys` lack the key that files are created with now, or one that a
    /// file needs: of the store, of its `lost/`, or one that is still being written. Only keys that the file system has now
    /// count. I/O, if the directory cannot be read.
    pub fn set_keys(&self, dir: &Path, keys: KeyRing) -> Result<()> {
        self.keys.replace(&*self.below, dir, keys)
    }

    /// What the header of an open file says.
    fn read_header(&self, file: &dyn RandomFile) -> Result<Found> {
        let bytes = &header::first_bytes(file)?;
        let found = header::read(bytes, &self.keys(), file.path())?;
        match found {
            Found::Plain if self.accepts_plain => Ok(found),
            Found::Plain => Err(match advice_for_plain(file, bytes)? {
                Some(advice) => {
                    let detail = format!("it is not encrypted: {advice}");
                    Error::Unsupported { path: file.path().into(), detail }
                }
                None => {
                    let why = "the header of an encrypted file is damaged";
                    Error::corruption(file.path(), 0, why)
                }
            }),
            Found::Encrypted { layout, .. } if !Kind::of(file.path()).allows(layout) => {
                let why = "it is encrypted as no file of its name is";
                Err(Error::corruption(file.path(), 0, why))
            }
            found => Ok(found),
        }
    }

    /// The content of an open file; of one in pages by `pages`.
    fn content(
        &self,
        file: Arc<dyn RandomFile>,
        pages: fn(Arc<dyn RandomFile>, LessSafeKey) -> Result<PagesFile>,
    ) -> Result<Arc<dyn RandomFile>> {
        let path = file.path().to_path_buf();
        Ok(match self.read_header(&*file) {
            Ok(Found::Encrypted { layout: Layout::Pages, key }) => Arc::new(pages(file, key)?),
            Ok(Found::Encrypted { layout: Layout::Frames, key }) => {
                Arc::new(FramesFile::new(file, key)?)
            }
            Ok(Found::Unwritten) => Arc::new(DamagedFile { path, len: 0 }),
            Ok(Found::Plain) => file,
            Err(error) if error.is_corruption() && self.stands_for_torn(&path) => {
                let len = file.len().saturating_sub(HEADER_BYTES as u64);
                Arc::new(DamagedFile { path, len })
            }
            Err(error) => return Err(error),
        })
    }

    /// Whether the file at `path` is to be read as torn if its header is damaged; not by a conversion, which would store
    /// something else in its place.
    fn stands_for_torn(&self, path: &Path) -> bool {
        Kind::of(path) == Kind::Growing && !self.accepts_plain
    }
}

/// What to do about a file that is not encrypted; nothing if it begins and ends as none of a store or of backups does, and
/// may be an encrypted one whose first bytes are damaged.
fn advice_for_plain(file: &dyn RandomFile, start: &[u8]) -> Result<Option<&'static str>> {
    /// Log segments, manifests and evidence; `CURRENT`.
    const STARTS: [&[u8]; 2] = [b"TERRALOG", b"MANIFEST-"];
    const RECORD_START: &[u8] = b"terrace backup ";
    const SST_END: [u8; 8] = *b"TerraSST";
    if STARTS.iter().any(|known| start.starts_with(known)) {
        return Ok(Some("open the store without keys, or encrypt it first with `terrace encrypt`"));
    }
    if start.starts_with(RECORD_START) {
        return Ok(Some(
            "open the backups without keys, and make encrypted ones in another directory",
        ));
    }
    let mut end = [0; SST_END.len()];
    if let Some(at) = file.len().checked_sub(SST_END.len() as u64) {
        file.read_at(at, &mut end)?;
    }
    let advice = "write it with the keys of the store if it is to be ingested; else open its store without keys, or \
                  encrypt it first with `terrace encrypt`";
    Ok((end == SST_END).then_some(advice))
}

/// A file that is not encrypted since nothing is ever written to it.
struct WithoutContent(Box<dyn AppendFile>);

impl AppendFile for WithoutContent {
    fn append(&mut self, _data: &[u8]) -> Result<()> {
        let why = "a file of this name has no content and is not encrypted";
        Err(Error::io("append", self.0.path(), io::Error::other(why)))
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.0.cut(len)
    }
}

/// A file below that is being written, and keeps the key that it needs in the ring.
struct WithKeys {
    file: Box<dyn AppendFile>,
    _used: Arc<Use>,
}

impl AppendFile for WithKeys {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.file.append(data)
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        self.file.sync_handle()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.file.cut(len)
    }
}

/// A file of which nothing can be read.
struct DamagedFile {
    path: PathBuf,
    len: u64,
}

impl RandomFile for DamagedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut damaged = Vec::new();
        self.read_around_damage(offset, buf, &mut damaged)?;
        match buf.is_empty() {
            true => Ok(()),
            false => {
                let why = "the header of an encrypted file is damaged";
                Err(Error::corruption(&self.path, offset, why))
            }
        }
    }

    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            return Err(Error::io("read", &self.path, ErrorKind::UnexpectedEof.into()));
        };
        buf.fill(0);
        if offset < end {
            damaged.push(offset..end);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn current_len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// How a request of a batch is answered.
enum Way<'a> {
    /// Read into a buffer of its own, then opened.
    Pages(&'a PagesFile, Span, Vec<u8>),
    /// As well; what is not in these blocks is read by itself.
    Frames(&'a FramesFile, frames::Span, Vec<u8>),
    /// By the file itself: it is not encrypted, or has nothing to read.
    Itself,
    /// It cannot be.
    Refused(Error),
}

impl<'a> Way<'a> {
    fn of(request: &ReadRequest<'a>) -> Self {
        let file: &'a dyn RandomFile = request.file;
        let Some(any) = file.as_any() else { return Self::Itself };
        let (offset, len) = (request.offset, request.buf.len());
        let way = if let Some(file) = any.downcast_ref::<PagesFile>() {
            file.span(offset, len).map(|span| {
                let sealed = vec![0; span.len];
                Self::Pages(file, span, sealed)
            })
        } else if let Some(file) = any.downcast_ref::<FramesFile>() {
            file.span(offset, len).map(|span| {
                let sealed = vec![0; span.len];
                Self::Frames(file, span, sealed)
            })
        } else {
            Ok(Self::Itself)
        };
        way.unwrap_or_else(Self::Refused)
    }
}

impl Vfs for EncryptedVfs {
    fn absolute(&self, path: &Path) -> PathBuf {
        self.below.absolute(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        let file = self.below.open(path, mode)?;
        match Kind::of(path) {
            Kind::Empty => Ok(file),
            _ => self.content(file, PagesFile::new),
        }
    }

    fn open_around_loss(&self, path: &Path) -> Result<Arc<dyn RandomFile>> {
        let file = self.below.open_around_loss(path)?;
        match Kind::of(path) {
            Kind::Empty => Ok(file),
            _ => self.content(file, PagesFile::of_what_is_left),
        }
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let (layout, preallocate_bytes) = match (Kind::of(path), options.grows) {
            (Kind::Empty, _) => {
                return Ok(Box::new(WithoutContent(self.below.create(path, options)?)));
            }
            (Kind::Growing, _) | (Kind::Temporary, true) => (Layout::Frames, 0),
            (_, false) => (Layout::Pages, options.preallocate_bytes),
            (Kind::Whole, true) => {
                let why = "no encrypted file of this name is read while it grows";
                return Err(Error::io("create", path, io::Error::other(why)));
            }
        };
        let (ring, used) = self.keys.keys_to_write();
        let (header, key) = header::create(&ring, layout, path)?;
        let below = CreateOptions { preallocate_bytes, zeros_ahead: false, ..options.clone() };
        let mut file = self.below.create(path, &below)?;
        if let Err(error) = file.append(&header) {
            // As if it had not been created; if that fails too, its content is none.
            drop(file);
            let _ = self.below.remove(path);
            return Err(error);
        }
        let file = Box::new(WithKeys { file, _used: used });
        Ok(match layout {
            Layout::Pages => Box::new(PagesWriter::new(file, key)),
            Layout::Frames => Box::new(FramesWriter::new(file, key)),
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.below.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.hard_link(from, to)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        // The copy has the key of the file: it is the same file.
        self.below.copy(from, to)
    }

    fn copy_around_loss(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.copy_around_loss(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.below.create_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.below.sync_dir(path)
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.below.sync_file(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.below.list(dir)
    }

    fn list_others(&self, dir: &Path) -> Result<Vec<String>> {
        self.below.list_others(dir)
    }

    fn is_own_dir(&self, path: &Path) -> Result<bool> {
        self.below.is_own_dir(path)
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        self.below.is_link(path)
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.copy_permissions(from, to)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        let file_bytes = self.below.len(path)?;
        if file_bytes == 0 || Kind::of(path) == Kind::Empty {
            return Ok(file_bytes);
        }
        let file = self.below.open(path, OpenMode::default())?;
        Ok(match self.read_header(&*file) {
            // Also of a file that was not finished.
            Ok(Found::Encrypted { layout: Layout::Pages, .. }) => content_len(file.len()),
            _ => self.content(file, PagesFile::new)?.len(),
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below.exists(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.below.lock_shared(path)
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn is_under_active_key(&self, path: &Path) -> Result<bool> {
        let file = self.below.open(path, OpenMode::default())?;
        let bytes = &header::first_bytes(&*file)?;
        let ring = self.keys();
        Ok(header::key_id(bytes) == Some(ring.active()) && header::names_key_of(bytes, &ring))
    }

    fn is_misnamed(&self, path: &Path) -> Result<bool> {
        let kind = Kind::of(path);
        if kind == Kind::Empty {
            return Ok(false);
        }
        let file = self.below.open(path, OpenMode::default())?;
        Ok(match header::read(&header::first_bytes(&*file)?, &self.keys(), path)? {
            Found::Encrypted { layout, .. } => !kind.allows(layout),
            Found::Unwritten | Found::Plain => false,
        })
    }

    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        self.below.free_space_bytes(dir)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut ways: Vec<Way<'_>> = requests.iter().map(Way::of).collect();
        let mut below = Vec::with_capacity(requests.len());
        for (request, way) in requests.iter_mut().zip(&mut ways) {
            below.push(match way {
                Way::Pages(file, span, sealed) => {
                    ReadRequest::new(file.below(), span.offset, sealed)
                }
                Way::Frames(file, span, sealed) => {
                    ReadRequest::new(file.below(), span.offset, sealed)
                }
                Way::Itself => ReadRequest::new(request.file, request.offset, request.buf),
                // Asks for nothing.
                Way::Refused(_) => ReadRequest::new(request.file, 0, &mut []),
            });
        }
        self.below.read_batch(&mut below);
        let read: Vec<_> = below.into_iter().map(|request| request.result).collect();
        for ((request, way), read) in requests.iter_mut().zip(ways).zip(read) {
            request.result = read.map(|read| match way {
                Way::Refused(error) => Err(error),
                Way::Itself => read,
                // Its end may have been cut off since it was opened: a read by itself sees that.
                Way::Frames(file, ..) if read.is_err() => file.read_at(request.offset, request.buf),
                Way::Frames(file, span, sealed) => {
                    file.open(&span, &sealed, request.offset, request.buf)
                }
                Way::Pages(file, span, mut sealed) => {
                    read.and_then(|()| file.open(&span, &mut sealed, request.offset, request.buf))
                }
            });
        }
    }
}
