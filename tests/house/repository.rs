//! The files of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, by its path from the root.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path relative to a folder, with slashes on every system.
pub(crate) fn name(path: &Path, folder: &Path) -> String {
    let name = path.strip_prefix(folder).expect("it is below the folder");
    name.to_string_lossy().replace('\\', "/")
}

/// All files below a folder. For a file, only that file.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = path.read_dir().expect("a folder can be listed");
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    paths.flat_map(|path| files(&path)).collect()
}
