//! Finds `posse-local`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::error::ServerError;

const NAME: &str = "posse-local";

/// Finds the server's binary: `POSSE_LOCAL_BIN`, beside this program, in the checkout that this program was built
/// in, in `PATH`.
pub fn find_binary() -> Result<PathBuf, ServerError> {
    let exe = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    find_from(std::env::var_os("POSSE_LOCAL_BIN").as_deref(), exe.as_deref(), std::env::var_os("PATH").as_deref())
}

pub(super) fn chosen(path: &Path) -> Result<PathBuf, ServerError> {
    if is_runnable(path) { Ok(path.to_owned()) } else { Err(ServerError::WrongBinary(path.to_owned())) }
}

fn find_from(named: Option<&OsStr>, exe: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, ServerError> {
    if let Some(named) = named.filter(|n| !n.is_empty()) {
        return chosen(Path::new(named));
    }
    let beside = exe.and_then(Path::parent).map(|dir| dir.join(NAME));
    // A checkout's target folder is somewhere below it: target/release/posse, target/debug/deps/….
    let in_checkout = exe.into_iter().flat_map(Path::ancestors).skip(1);
    let in_checkout = in_checkout.map(|dir| dir.join("crates/local/target/release").join(NAME));
    let path = path.map(|p| std::env::split_paths(p).collect::<Vec<_>>()).unwrap_or_default();
    // A relative folder in PATH would be looked up wherever the caller happens to stand.
    let in_path = path.into_iter().filter(|dir| dir.is_absolute()).map(|dir| dir.join(NAME));
    beside.into_iter().chain(in_checkout).chain(in_path).find(|p| is_runnable(p)).ok_or(ServerError::NoBinary)
}

fn is_runnable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(path: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        fs::write(path, "").expect("the file");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
        path.to_owned()
    }

    #[test]
    fn each_place_is_looked_at_in_order() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let root = dir.path();
        let exe = root.join("checkout/target/release/posse");
        let path = root.join("bin").into_os_string();
        let find = |named: Option<&Path>| find_from(named.map(Path::as_os_str), Some(&exe), Some(&path)).ok();

        assert_eq!(find(None), None);
        let in_path = put(&root.join("bin/posse-local"), 0o755);
        assert_eq!(find(None), Some(in_path));
        let built = put(&root.join("checkout/crates/local/target/release/posse-local"), 0o755);
        assert_eq!(find(None), Some(built));
        let beside = put(&root.join("checkout/target/release/posse-local"), 0o755);
        assert_eq!(find(None), Some(beside));
        let named = put(&root.join("elsewhere/server"), 0o755);
        assert_eq!(find(Some(&named)), Some(named));
    }

    #[test]
    fn a_missing_binary_says_how_to_get_it() {
        let error = find_from(None, None, None).expect_err("nowhere").to_string();
        assert!(error.contains("./quickstart") && error.contains("cargo build"), "{error}");
    }
}
