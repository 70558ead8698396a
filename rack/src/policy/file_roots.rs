//! File roots: opens files beneath the folders that a policy allows, whatever links say.
//!
//! ```text
//! path of a scenario ─▶ beneath a root? ─▶ openat2(root, rest, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
//!                                               │ a link leads elsewhere
//!                                               ▼
//!                       the path without links ─▶ beneath a root? ─▶ openat2 once more, else refused
//! ```
//!
//! # Invariants
//!
//! - The kernel resolves a path beneath its root in one step: nobody can exchange a folder for a link in between. A link that leads to another
//!   place beneath a root is followed, also an absolute one.
//! - A relative path is one beneath the first root. `..` is refused.
//! - Opening waits for nobody: a named pipe is opened as it is, without its other end.
//!
//! # Not here
//!
//! What roots may be ([`super::root_check`]).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use durable_fs::parent_of;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use super::PolicyRefusal;

/// The permissions of a file that is made, less those of the process's mask.
const NEW_FILE: Mode = Mode::from_bits_truncate(0o666);

/// What is done beneath the roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// `policy.read_roots`.
    Read,
    /// `policy.write_roots`.
    Write,
}

/// The folders beneath which gears use files.
#[derive(Debug, Clone)]
pub(crate) struct FileRoots {
    usage: FileUse,
    /// None where everything is allowed.
    roots: Option<Vec<PathBuf>>,
}

impl FileRoots {
    /// The folders are absolute.
    pub(super) const fn new(usage: FileUse, roots: Option<Vec<PathBuf>>) -> Self {
        Self { usage, roots }
    }

    /// Whether a path is beneath a root, as far as its text says; the absolute path.
    pub(super) fn locate(&self, path: &Path) -> Result<PathBuf, PolicyRefusal> {
        let Some(roots) = &self.roots else {
            return Ok(path.to_owned());
        };
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        let whole = roots.first().map(|first| first.join(path));
        let found = whole.filter(|whole| !goes_up && roots.iter().any(|root| whole.starts_with(root)));
        found.ok_or_else(|| self.refusal(path))
    }

    /// Opens a file to read it.
    pub(crate) fn open_to_read(&self, path: &Path) -> io::Result<File> {
        self.open(path, OFlag::O_RDONLY)
    }

    /// Opens a file to append to it; makes it if need be.
    pub(crate) fn open_to_append(&self, path: &Path) -> io::Result<File> {
        self.open(path, OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT)
    }

    /// Looks at a file without opening it.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.open(path, OFlag::O_PATH)?.metadata()
    }

    /// The content of a file that has at most so many bytes.
    pub(crate) fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open_to_read(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            let long = format!("it has more than {most} bytes, the most that are read of such a file");
            return Err(io::Error::new(io::ErrorKind::InvalidData, long));
        }
        Ok(bytes)
    }

    /// The names in a folder.
    pub(crate) fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut folder = Dir::from_fd(OwnedFd::from(self.open(folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?))?;
        // After an error the iterator goes on for ever: the first one ends it.
        let names = folder
            .iter()
            .map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()));
        let names: io::Result<Vec<OsString>> = names.collect();
        Ok(names?.into_iter().filter(|name| name != "." && name != "..").collect())
    }

    /// Opens a folder to rename files in it, which asks for no right to list it.
    pub(crate) fn open_folder(&self, folder: &Path) -> io::Result<OpenFolder> {
        let folder = self.open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(OpenFolder(folder))
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        // With O_PATH nothing else may be said.
        let flags = if flags.contains(OFlag::O_PATH) {
            flags - OFlag::O_NOCTTY
        } else {
            flags | OFlag::O_NONBLOCK
        };
        let Some(roots) = &self.roots else {
            let mode = if flags.contains(OFlag::O_CREAT) {
                NEW_FILE
            } else {
                Mode::empty()
            };
            return Ok(open(path, flags, mode)?.into());
        };
        let path = self.locate(path)?;
        match open_beneath(roots, &path, flags) {
            Err(Errno::EXDEV | Errno::ELOOP) => {}
            opened => return Ok(opened?.into()),
        }
        let real_roots: Vec<PathBuf> = roots.iter().filter_map(|root| root.canonicalize().ok()).collect();
        let real = real_path(&path)?;
        match open_beneath(&real_roots, &real, flags) {
            Err(Errno::EXDEV | Errno::ELOOP) => Err(PolicyRefusal {
                asked: format!("{} {}, which leads to {},", self.verb(), path.display(), real.display()),
                ..self.refusal(&path)
            }
            .into()),
            opened => Ok(opened?.into()),
        }
    }

    fn refusal(&self, path: &Path) -> PolicyRefusal {
        let roots = self.roots.iter().flatten().map(|root| root.display().to_string());
        PolicyRefusal {
            asked: format!("{} {}", self.verb(), path.display()),
            key: match self.usage {
                FileUse::Read => "policy.read_roots",
                FileUse::Write => "policy.write_roots",
            },
            allowed: roots.collect(),
        }
    }

    const fn verb(&self) -> &'static str {
        match self.usage {
            FileUse::Read => "reading",
            FileUse::Write => "writing",
        }
    }
}

/// How often a file is opened where the kernel asks to try again.
const TRIES: usize = 16;

/// The path without links, also of a file that is not there yet.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        real => return real,
    }
    let target = path.read_link().unwrap_or_else(|_| path.to_owned());
    let place = parent_of(path).join(target);
    let folder = parent_of(&place).canonicalize()?;
    Ok(folder.join(place.file_name().unwrap_or_default()))
}

/// `EXDEV` where the path is not beneath a root.
fn open_beneath(roots: &[PathBuf], path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let found = roots
        .iter()
        .find_map(|root| Some((root, path.strip_prefix(root).ok()?)));
    let (root, rest) = found.ok_or(Errno::EXDEV)?;
    let rest = if rest.as_os_str().is_empty() {
        Path::new(".")
    } else {
        rest
    };
    let root = open(
        root,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let how = if flags.contains(OFlag::O_CREAT) {
        how.mode(NEW_FILE)
    } else {
        how
    };
    // The kernel asks to try again where something was renamed anywhere while it followed `..` of a link.
    for _ in 1..TRIES {
        match openat2(&root, rest, how) {
            Err(Errno::EAGAIN) => {}
            opened => return opened,
        }
    }
    openat2(&root, rest, how)
}

/// A folder beneath a root, held open.
#[derive(Debug)]
pub(crate) struct OpenFolder(File);

impl OpenFolder {
    /// Renames what is there from one name in it to another.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match nix::fcntl::renameat(&self.0, from, &self.0, to) {
            Err(Errno::ENOENT) => Ok(()),
            renamed => Ok(renamed?),
        }
    }

    /// Waits until renames are on the disk. The kernel wants a folder that may be read for that.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = openat(&self.0, ".", flags, Mode::empty()).map_err(|error| {
            let text = format!("cannot sync the folder: {error}; fsync: true needs the right to read it");
            io::Error::new(io::Error::from(error).kind(), text)
        });
        File::from(opened?).sync_all()
    }
}
