//! What every connection of this process is born with: sqlite-vec, the one built in or the one in
//! the folder for extensions, settings of SQLite's own, and plans that stay. Here is nearly all
//! `unsafe` of the database code.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use diesel::connection::SimpleConnection as _;
use diesel::{Connection, SqliteConnection};
use libsqlite3_sys as ffi;
use posse_core::port::{RepositoryError, Result};

/// An extension's entry point, as SQLite calls it for every new connection.
type Init = unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const ffi::sqlite3_api_routines) -> c_int;

/// What was registered first stands for the life of the process; SQLite keeps one list for all.
static REGISTERED: OnceLock<Result<Source, String>> = OnceLock::new();

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    BuiltIn,
    File(PathBuf),
}

/// Makes sqlite-vec part of every connection opened from now on, preferring a build of it in
/// `folder`: one whose files may be run. Call it before the first database is opened; once a source was chosen it stays, and
/// every later call returns the first answer.
pub fn register_from(folder: Option<&Path>) -> Result<Source> {
    let file = folder.map(|folder| folder.join(format!("vec0{}", std::env::consts::DLL_SUFFIX)));
    let chosen = REGISTERED.get_or_init(|| {
        set_up();
        keep_plans()?;
        match file.filter(|file| file.exists()) {
            Some(file) => load(&file),
            None => built_in(),
        }
    });
    chosen.clone().map_err(RepositoryError::Unusable)
}

/// The same, with the built-in one where nothing was chosen before. A failure was told to whoever
/// chose.
pub(super) fn register() {
    let _ = REGISTERED.get_or_init(|| {
        set_up();
        keep_plans().and_then(|()| built_in())
    });
}

/// Has SQLite leave out what this process does not need: locks around connections, none of which is
/// used by two threads at once; statistics of memory, for which every allocation takes a lock; and
/// twenty pages of memory ahead for every table that a statement makes for its own use.
fn set_up() {
    // SAFETY: SQLite is not in use yet; where something else in the process was faster it refuses,
    // and stays as it is. Each setting has these arguments.
    unsafe {
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD);
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int);
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_PAGECACHE, std::ptr::null_mut::<c_void>(), 0 as c_int, 0 as c_int);
    }
}

/// Has every connection keep the plan a statement was prepared with. Otherwise SQLite plans a
/// statement with `LIMIT ?` anew whenever the limit is bound, which costs more than running it.
fn keep_plans() -> Result<(), String> {
    unsafe extern "C" fn init(
        connection: *mut ffi::sqlite3,
        _: *mut *mut c_char,
        _: *const ffi::sqlite3_api_routines,
    ) -> c_int {
        let (on, no_answer) = (1 as c_int, std::ptr::null_mut::<c_int>());
        // SAFETY: SQLite calls this with a new connection; this setting takes these two arguments.
        unsafe { ffi::sqlite3_db_config(connection, ffi::SQLITE_DBCONFIG_ENABLE_QPSG, on, no_answer) }
    }
    register_init(init)
}

fn built_in() -> Result<Source, String> {
    // SAFETY: `sqlite3_vec_init` has the signature of an entry point; the crate declares it without
    // its parameters. It is compiled against the same SQLite that calls it.
    let init = unsafe { std::mem::transmute::<*const (), Init>(sqlite_vec::sqlite3_vec_init as *const ()) };
    register_init(init)?;
    Ok(Source::BuiltIn)
}

fn load(file: &Path) -> Result<Source, String> {
    let failed = |error: libloading::Error| {
        format!("{} cannot be used as sqlite-vec: {error}; replace or remove it", file.display())
    };
    // SAFETY: loading runs the file's code; whoever can write this folder decides what posse runs,
    // as its README says.
    let library = unsafe { libloading::Library::new(file) }.map_err(failed)?;
    // SAFETY: an extension exports this symbol with this signature, by SQLite's naming rule.
    let init = *unsafe { library.get::<Init>(b"sqlite3_vec_init\0") }.map_err(failed)?;
    // Every later connection calls into it, so it stays loaded.
    std::mem::forget(library);
    register_init(init)?;
    // An entry point that fails would make every later connection fail, and nothing would say why.
    does_its_work().map_err(|error| {
        // SAFETY: only takes the entry off SQLite's list.
        unsafe { ffi::sqlite3_cancel_auto_extension(Some(init)) };
        format!("{} does not work as sqlite-vec: {error}; replace or remove it", file.display())
    })?;
    Ok(Source::File(file.to_owned()))
}

/// Whether a new connection has what `rows/vectors.rs` asks of it.
fn does_its_work() -> Result<(), String> {
    let mut connection = SqliteConnection::establish(":memory:").map_err(|error| error.to_string())?;
    let asks = "CREATE VIRTUAL TABLE vss
            USING vec0 (id INTEGER PRIMARY KEY, scope TEXT PARTITION KEY, signs bit[8], +vector BLOB);
        INSERT INTO vss (id, scope, signs, vector) VALUES (1, 's', vec_bit(x'01'), x'00');
        SELECT validity, rowids, partition00, vectors, value00 FROM vss_chunks
            JOIN vss_vector_chunks00 AS bits ON bits._rowid_ = chunk_id JOIN vss_auxiliary AS kept ON kept.rowid = 1;
        DELETE FROM vss WHERE id = 1";
    connection.batch_execute(asks).map_err(|error| error.to_string())
}

fn register_init(init: Init) -> Result<(), String> {
    // SAFETY: `init` is an entry point that stays loaded for the life of the process.
    match unsafe { ffi::sqlite3_auto_extension(Some(init)) } {
        ffi::SQLITE_OK => Ok(()),
        code => {
            // SAFETY: `sqlite3_errstr` gives a static text for every number.
            let text = unsafe { CStr::from_ptr(ffi::sqlite3_errstr(code)) };
            Err(format!("SQLite could not be set up: {}", text.to_string_lossy()))
        }
    }
}
