//! Disks of a test's own: an ext4 whose power can be cut, a small tmpfs. They need root, loop devices and mkfs; where one
//! is missing the answer is [`Lacking`], which a test prints.
//!
//! # The power cut
//!
//! `EXT4_IOC_SHUTDOWN` without a log flush makes the kernel drop everything that was not synced, by the code that runs at a
//! real failure: content, lengths, names. A mount of the same image afterwards replays the journal as after a reboot.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// What a machine does not have.
#[derive(Debug)]
pub struct Lacking(pub String);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED, this machine cannot do it: {}", self.0)
    }
}

/// A mounted disk. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Disk {
    image: Option<PathBuf>,
    at: PathBuf,
    mounted: bool,
    _folder: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| format!("{program} could not be started: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), said.trim()))
}

impl std::error::Error for Lacking {}

impl Disk {
    /// An ext4 of `mib` MiB on a loop device.
    ///
    /// # Errors
    /// What the machine lacks for it.
    pub fn ext4(mib: u64) -> Result<Self, Lacking> {
        let folder = tempfile::tempdir().map_err(|error| Lacking(error.to_string()))?;
        let image = folder.path().join("disk.img");
        let made = File::create(&image).and_then(|file| file.set_len(mib << 20));
        made.map_err(|error| Lacking(error.to_string()))?;
        run("mkfs.ext4", &["-q", "-F", &image.display().to_string()]).map_err(Lacking)?;
        let mut disk = Self::below(folder, Some(image))?;
        disk.mount().map_err(|error| Lacking(error.to_string()))?;
        Ok(disk)
    }

    /// An ext4 of `mib` MiB whose image lies on this disk, which may have less room than it promises: then the kernel's
    /// write-back fails, later, behind everybody's back.
    ///
    /// # Errors
    /// What the machine lacks for it.
    pub fn ext4_within(&self, mib: u64) -> Result<Self, Lacking> {
        let folder = tempfile::tempdir().map_err(|error| Lacking(error.to_string()))?;
        let image = self.at.join("disk.img");
        let made = File::create(&image).and_then(|file| file.set_len(mib << 20));
        made.map_err(|error| Lacking(error.to_string()))?;
        run(
            "mkfs.ext4",
            &["-q", "-F", "-E", "nodiscard", &image.display().to_string()],
        )
        .map_err(Lacking)?;
        let mut disk = Self::below(folder, Some(image))?;
        disk.mount().map_err(|error| Lacking(error.to_string()))?;
        Ok(disk)
    }

    /// Has every block of an ext4's journal written, by so many changes that it goes round.
    ///
    /// # Errors
    /// If a file cannot be made, synced or removed.
    pub fn write_journal(&self) -> Result<(), Failure> {
        // A sync takes three blocks of it at least, and there are a thousand.
        let name = |n: u32| self.at.join(format!("change-{n}"));
        for n in 0..4000 {
            let file = File::create(name(n))?;
            if n % 4 == 0 {
                file.sync_all()?;
            }
        }
        (0..4000).try_for_each(|n| std::fs::remove_file(name(n)))?;
        Ok(File::open(&self.at)?.sync_all()?)
    }

    /// The MiB that are in use.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn used(&self) -> Result<u64, Failure> {
        let about = nix::sys::statvfs::statvfs(&self.at)?;
        let blocks = about.blocks().saturating_sub(about.blocks_free());
        Ok((blocks * about.fragment_size()).div_ceil(1 << 20))
    }

    /// Gives a tmpfs another size.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn resize(&self, mib: u64) -> Result<(), Failure> {
        Ok(run(
            "mount",
            &["-o", &format!("remount,size={mib}m"), &self.at.display().to_string()],
        )?)
    }

    /// A tmpfs of `mib` MiB.
    ///
    /// # Errors
    /// What the machine lacks for it.
    pub fn tmpfs(mib: u64) -> Result<Self, Lacking> {
        let folder = tempfile::tempdir().map_err(|error| Lacking(error.to_string()))?;
        let mut disk = Self::below(folder, None)?;
        let (size, at) = (format!("size={mib}m"), disk.at.display().to_string());
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &at]).map_err(Lacking)?;
        disk.mounted = true;
        Ok(disk)
    }

    /// Writes until the disk takes no more; again, if something has gone from it meanwhile.
    ///
    /// # Errors
    /// If it cannot be written for another reason.
    pub fn fill(&self) -> Result<(), Failure> {
        let filler = OpenOptions::new().create(true).append(true).open(self.filler());
        let mut filler = match filler {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            filler => filler?,
        };
        let mut piece = 1 << 20;
        let zeros = vec![0; piece];
        while piece >= 512 {
            match filler.write_all(&zeros[..piece]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => piece /= 2,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes away what [`fill`](Self::fill) wrote.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn make_room(&self) -> Result<(), Failure> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    fn below(folder: tempfile::TempDir, image: Option<PathBuf>) -> Result<Self, Lacking> {
        let at = folder.path().join("mnt");
        std::fs::create_dir(&at).map_err(|error| Lacking(error.to_string()))?;
        Ok(Self {
            image,
            at,
            mounted: false,
            _folder: folder,
        })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    fn mount(&mut self) -> Result<(), Failure> {
        let image = self.image.as_ref().ok_or("only an image can be mounted again")?;
        run(
            "mount",
            &[
                "-o",
                "loop",
                &image.display().to_string(),
                &self.at.display().to_string(),
            ],
        )?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power, now: nothing unsynced is left, every later call on the disk fails.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn cut(&self) -> Result<(), Failure> {
        shut_down(&File::open(&self.at)?)
    }

    /// Forgets what is in memory and not on the disk, as a restart of the machine does; nobody may have a file of it open.
    ///
    /// # Errors
    /// If it cannot be unmounted or mounted.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.power_on()
    }

    /// Brings the disk back after a cut; nobody may have a file of it open.
    ///
    /// # Errors
    /// If it cannot be unmounted or mounted.
    pub fn power_on(&mut self) -> Result<(), Failure> {
        run("umount", &[&self.at.display().to_string()])?;
        self.mounted = false;
        self.mount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a test that fails may still hold files.
            let _ = run("umount", &["-l", &self.at.display().to_string()]);
        }
    }
}

/// `_IOR('X', 125, u32)`, and the flag "without flushing the log".
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
const NO_LOG_FLUSH: u32 = 2;

#[allow(unsafe_code, reason = "no safe wrapper knows this ioctl")]
fn shut_down(root: &File) -> Result<(), Failure> {
    let flags = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open as long as `root` is borrowed, and the kernel only reads four bytes at the pointer.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, std::ptr::from_ref(&flags)) };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().into())
    }
}
