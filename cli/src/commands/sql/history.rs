//! The history file of the SQL shell.
//!
//! It is `sql_history` in the state folder (`base.state_dir`), if that is there and may be written; else in `platform` below
//! `$XDG_STATE_HOME`, or `~/.local/state`. Statements may name secrets: nobody else may read the file.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chassis::config;

use crate::args::GlobalArgs;
use crate::commands::config::sources;

const FILE: &str = "sql_history";

/// The file, if there is a place for one.
#[derive(Debug)]
pub(super) struct HistoryFile(Option<PathBuf>);

impl HistoryFile {
    pub(super) fn find(global: &GlobalArgs) -> Self {
        let settings = config::load(&rack::config::SCHEMA, &sources(global));
        let state = settings.ok().map(|settings| settings.path("base.state_dir"));
        let own = own_folder(|name| std::env::var_os(name).map(PathBuf::from));
        Self::of(state.as_deref(), own.as_deref())
    }

    /// The first place of the two where a file can be; only the user's own folder is made.
    fn of(state: Option<&Path>, own: Option<&Path>) -> Self {
        let inside = |folder: &Path| claim(&folder.join(FILE));
        let state = state.and_then(|folder| inside(folder).ok());
        Self(state.or_else(|| {
            let folder = own?;
            DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
            inside(folder).ok()
        }))
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

/// The folder for what a program remembers for its user.
fn own_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let named = variable("XDG_STATE_HOME").filter(|folder| folder.is_absolute());
    let home = || {
        Some(
            variable("HOME")
                .filter(|folder| folder.is_absolute())?
                .join(".local/state"),
        )
    };
    Some(named.or_else(home)?.join("platform"))
}

/// Makes the file if it is not there, and keeps others from reading it.
fn claim(path: &Path) -> io::Result<PathBuf> {
    let file: File = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_file_is_in_the_state_folder_or_in_the_users_own_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let (state, own) = (folder.path().join("state"), folder.path().join("own/platform"));
        let history = HistoryFile::of(Some(&state), Some(&own));
        assert_eq!(
            history.path(),
            Some(own.join(FILE).as_path()),
            "no state folder is made"
        );
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join(FILE), "").unwrap();
        let history = HistoryFile::of(Some(&state), Some(&own));
        assert_eq!(history.path(), Some(state.join(FILE).as_path()));
        for path in [state.join(FILE), own.join(FILE)] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        }
        assert_eq!(HistoryFile::of(None, None).path(), None);
    }

    #[test]
    fn a_users_own_folder_is_where_other_programs_have_theirs() {
        let with = |pairs: &'static [(&str, &str)]| {
            own_folder(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
        };
        assert_eq!(
            with(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]),
            Some("/x/platform".into())
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "x"), ("HOME", "/h")]),
            Some("/h/.local/state/platform".into())
        );
        assert_eq!(with(&[]), None);
    }
}
