//! Control groups: where the worker may make some, the kernel itself holds the limits on memory and processes.
//!
//! Both versions will do, version 1 with each controller on its own. A group is made beneath the one that the worker is in,
//! so whatever bounds the worker bounds its commands too. Version 2 lets no process be beside groups with controllers, so
//! there the group is made beneath the worker's if that is the root, else beside the worker's.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::process::Pid;

use super::proc::field;
use super::spec::{CommandLimits, Exact, Limit};

/// How groups of ours are named, before the number of their launcher.
const NAME: &str = "posse-command-";

/// The groups that hold one command; none where none can be made.
#[derive(Default)]
pub(super) struct Group {
    memory: Option<Rc<Folder>>,
    /// With version 2 the same one.
    processes: Option<Rc<Folder>>,
}

/// One group. Opened while the host's files can be, used when they cannot.
struct Folder {
    parent: OwnedFd,
    name: String,
    own: OwnedFd,
    procs: fs::File,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    /// Makes groups with these limits, as far as they can be had here.
    pub fn make(limits: &CommandLimits) -> Group {
        let Some(places) = Places::find() else { return Group::default() };
        let memory = (limits.memory_mb << 20).to_string();
        // The first process of the sandbox is one of them.
        let processes = (limits.processes + 1).to_string();
        if let Some(both) = places.unified {
            let folder = Folder::make(&both, Version::Two, &[("memory.max", &memory), ("pids.max", &processes)]);
            if let Some(folder) = folder {
                let _ = folder.write("memory.swap.max", "0");
                let _ = folder.write("memory.oom.group", "1");
                return Group { processes: Some(Rc::clone(&folder)), memory: Some(folder) };
            }
        }
        let one = |place: Option<PathBuf>, file, value: &str| Folder::make(&place?, Version::One, &[(file, value)]);
        let group = Group {
            memory: one(places.memory, "memory.limit_in_bytes", &memory),
            processes: one(places.processes, "pids.max", &processes),
        };
        if let Some(folder) = &group.memory {
            // Memory and swap together; not there where swap is not counted.
            let _ = folder.write("memory.memsw.limit_in_bytes", &memory);
        }
        group
    }

    pub fn exact(&self) -> Exact {
        Exact { memory: self.memory.is_some(), processes: self.processes.is_some() }
    }

    /// Takes a process in, and with it all that it makes from now on. A group that does not take it is of no use.
    pub fn take(&mut self, pid: Pid) {
        let number = pid.as_raw_nonzero().to_string();
        for group in [&mut self.memory, &mut self.processes] {
            let taken = group.as_ref().map(|folder| (&folder.procs).write_all(number.as_bytes()));
            if taken.is_some_and(|taken| taken.is_err()) {
                group.take();
            }
        }
    }

    /// The limit that was met, if one was.
    pub fn broken(&self) -> Option<Limit> {
        let count = |folder: &Option<Rc<Folder>>, file: [&str; 2], name| {
            let folder = folder.as_ref()?;
            let text = folder.read(if folder.version == Version::One { file[0] } else { file[1] });
            // What cannot be read counts as met.
            Some(text.map_or(1, |text| field(&text, name)))
        };
        if count(&self.memory, ["memory.oom_control", "memory.events"], "oom_kill ").is_some_and(|kills| kills > 0) {
            return Some(Limit::Memory);
        }
        count(&self.processes, ["pids.events", "pids.events"], "max ")
            .is_some_and(|refused| refused > 0)
            .then_some(Limit::Processes)
    }
}

impl Drop for Folder {
    /// There is no process in it any more.
    fn drop(&mut self) {
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

impl Folder {
    fn make(parent: &Path, version: Version, values: &[(&str, &str)]) -> Option<Rc<Folder>> {
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, folder, Mode::empty()).ok()?;
        sweep(&parent);
        let name = format!("{NAME}{}", std::process::id());
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755)).ok()?;
        let made = || {
            let own = openat(&parent, &name, folder, Mode::empty()).ok()?;
            let write = OFlags::WRONLY | OFlags::CLOEXEC;
            let procs = openat(&own, "cgroup.procs", write, Mode::empty()).ok()?;
            for (file, value) in values {
                put(&own, file, value).ok()?;
            }
            Some((own, procs))
        };
        match made() {
            Some((own, procs)) => Some(Rc::new(Folder { parent, name, own, procs: procs.into(), version })),
            None => {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                None
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> std::io::Result<()> {
        put(&self.own, file, value)
    }

    fn read(&self, file: &str) -> std::io::Result<String> {
        let open = openat(&self.own, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        std::io::read_to_string(fs::File::from(open))
    }
}

fn put(folder: &OwnedFd, file: &str, value: &str) -> std::io::Result<()> {
    let open = openat(folder, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    fs::File::from(open).write_all(value.as_bytes())
}

/// Removes what launchers left that were killed. A group with processes in it cannot be removed.
fn sweep(parent: &OwnedFd) {
    let entries = rustix::fs::Dir::read_from(parent).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let launcher = name.strip_prefix(NAME).filter(|number| number.parse::<u32>().is_ok());
        if launcher.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

#[derive(Default)]
struct Places {
    unified: Option<PathBuf>,
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
}

impl Places {
    fn find() -> Option<Places> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mut places = Places::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let has = |name| controllers.split(',').any(|controller| controller == name);
            if controllers.is_empty() {
                places.unified = mounted(&mounts, path, |kind, _| kind == "cgroup2").and_then(|at| delegated(&at));
            }
            let one = |name| mounted(&mounts, path, |kind, options| kind == "cgroup" && options.contains(&name));
            if has("memory") {
                places.memory = one("memory");
            }
            if has("pids") {
                places.processes = one("pids");
            }
        }
        Some(places)
    }
}

/// Where the group at `path` of a hierarchy is to be found, by a mount that is so.
fn mounted(mounts: &str, path: &str, is_so: impl Fn(&str, &[&str]) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        if !is_so(kind, &options.split(',').collect::<Vec<_>>()) {
            return None;
        }
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?, before.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Path::new(at).join(below))
    })
}

/// A folder of version 2 in which groups can have both controllers: the one there or the one above.
fn delegated(own: &Path) -> Option<PathBuf> {
    let has_both = |folder: &Path, file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        ["memory", "pids"].iter().all(|name| text.split_whitespace().any(|word| word == *name))
    };
    [Some(own), own.parent()].into_iter().flatten().find_map(|folder| {
        let file = "cgroup.subtree_control";
        let is_given = has_both(folder, "cgroup.controllers")
            && (has_both(folder, file) || fs::write(folder.join(file), "+memory +pids").is_ok());
        is_given.then(|| folder.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_mount() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      40 31 0:37 /docker/7 /groups/pids rw shared:9 - cgroup none rw,cpu,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let one = |path, name: &'static str| {
            mounted(mounts, path, |kind, options| kind == "cgroup" && options.contains(&name))
        };
        assert_eq!(one("/a/b", "memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(one("/docker/7/x", "pids"), Some("/groups/pids/x".into()));
        // It lies outside of what is mounted.
        assert_eq!(one("/docker/8", "pids"), None);
        assert_eq!(one("/", "blkio"), None);
        assert_eq!(mounted(mounts, "/", |kind, _| kind == "cgroup2"), Some("/sys/fs/cgroup/unified/".into()));
    }

    #[test]
    fn version_2_is_used_where_both_controllers_are_given() {
        let folder = tempfile::tempdir().unwrap();
        let unit = folder.path().join("unit");
        let own = unit.join("worker");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "memory pids\n").unwrap();
        fs::create_dir(own.join("cgroup.subtree_control")).unwrap();
        assert_eq!(delegated(&own), None);
        fs::write(unit.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(unit.join("cgroup.subtree_control"), "memory\n").unwrap();
        // A process of its own keeps the first from giving controllers on; the one above can.
        assert_eq!(delegated(&own), Some(unit.clone()));
        assert_eq!(fs::read_to_string(unit.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
    }
}
