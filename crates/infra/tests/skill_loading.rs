//! Skills from real folders: what is found, what is hidden, what is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use posse_core::skill::{Severity, SkillFileProblem, SkillScope, Skills};
use posse_infra::skill::{MAX_FILE_BYTES, SkillRoot, load_all, load_path, roots};
use posse_infra::tool::ToolRegistry;
use tempfile::TempDir;

struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn write(&self, below: &str, text: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A good skill in `folder`, named after it.
    fn skill(&self, folder: &str) {
        let name = Path::new(folder).file_name().expect("a name").to_string_lossy().into_owned();
        self.write(&format!("{folder}/SKILL.md"), good(&name));
    }

    fn load(&self) -> Skills {
        load_all(&roots(&self.path("project"), Some(&self.path("home"))), &[], &ToolRegistry::builtin())
    }

    /// What was said, with the paths below this folder.
    fn said(&self, loaded: &Skills) -> Vec<String> {
        let base = format!("{}/", self.0.path().canonicalize().expect("a path").display());
        let given = format!("{}/", self.0.path().display());
        let say = |p: &SkillFileProblem| format!("{:?} {p}", p.problem.severity).replace(&base, "").replace(&given, "");
        loaded.problems.iter().map(say).collect()
    }
}

fn good(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}. Use when {name} is asked for.\n---\nDo it.\n")
}

fn names(loaded: &Skills) -> Vec<&str> {
    loaded.skills.iter().map(|skill| skill.name.as_str()).collect()
}

#[test]
fn e01_an_unquoted_colon_keeps_the_restriction_and_is_told_loudly() {
    let home = Home::new();
    let tidy = "---\nname: tidy-report\ndescription: Makes a report. Use when: the user wants a summary, e.g. weekly numbers.\n\
                allowed-tools: files_read\n---\nStep 1: read numbers.txt. Step 2: write nothing.\n";
    home.write("project/config/skills/tidy-report/SKILL.md", tidy);
    home.skill("project/config/skills/beside");
    let loaded = home.load();
    assert_eq!(names(&loaded), ["beside", "tidy-report"]);
    let skill = loaded.get("tidy-report").expect("loaded");
    assert_eq!(skill.description, "Makes a report. Use when: the user wants a summary, e.g. weekly numbers.");
    assert_eq!(skill.allowed_tools.as_deref(), Some(&["files_read".to_owned()][..]));
    assert_eq!(skill.body.trim(), "Step 1: read numbers.txt. Step 2: write nothing.");
    let said = home.said(&loaded);
    assert_eq!(said.len(), 2, "{said:?}");
    let file = "project/config/skills/tidy-report/SKILL.md";
    assert!(
        said[0].starts_with(&format!("Warning {file}:3:38: description has an unquoted ': ' in its value")),
        "{said:?}"
    );
    assert!(
        said[0]
            .ends_with("Write description: 'Makes a report. Use when: the user wants a summary, e.g. weekly numbers.'")
    );
    assert!(said[1].contains("allowed-tools names 'files_read', which is no tool here"), "{said:?}");

    // The same where the restriction itself cannot be read: the skill is not there at all.
    home.write(
        "project/config/skills/tidy-report/SKILL.md",
        tidy.replace("allowed-tools: files_read", "  allowed-tools: x"),
    );
    let loaded = home.load();
    assert_eq!(names(&loaded), ["beside"]);
    assert!(home.said(&loaded)[0].starts_with(&format!("Error {file}:")), "{:?}", home.said(&loaded));
}

#[test]
fn the_project_hides_what_the_user_has_and_says_so() {
    let home = Home::new();
    home.skill("home/.agents/skills/a");
    home.skill("home/.agents/skills/b");
    home.skill("project/.agents/skills/b");
    home.skill("project/config/skills/group/c");
    let loaded = home.load();
    assert_eq!(names(&loaded), ["a", "b", "c"]);
    let scopes: Vec<_> = loaded.skills.iter().map(|skill| skill.source.scope).collect();
    assert_eq!(scopes, [SkillScope::User, SkillScope::Project, SkillScope::Project]);
    assert_eq!(loaded.skills[2].source.file, home.path("project/config/skills/group/c/SKILL.md"));
    assert_eq!(
        home.said(&loaded),
        [
            "Note home/.agents/skills/b/SKILL.md:2:1: name 'b' is hidden by the skill of the project, project/.agents/skills/b/SKILL.md"
        ]
    );

    // Within the project two of one name are a mistake; config/skills wins.
    home.skill("project/config/skills/b");
    let loaded = home.load();
    assert_eq!(loaded.get("b").expect("there").source.file, home.path("project/config/skills/b/SKILL.md"));
    assert!(home.said(&loaded)[0].starts_with("Error project/.agents/skills/b/SKILL.md:2:1: name 'b' is described by"));

    // A home folder that is the project is not looked through twice.
    let one = roots(&home.path("home"), Some(&home.path("home")));
    assert_eq!(load_all(&one, &[], &ToolRegistry::builtin()).problems, []);
    assert_eq!(roots(Path::new("/p"), None).len(), 2);
}

#[test]
fn one_broken_skill_leaves_the_others_working() {
    let home = Home::new();
    let skills = "project/config/skills";
    home.skill(&format!("{skills}/good"));
    home.write(&format!("{skills}/lower/skill.md"), good("lower"));
    home.write(&format!("{skills}/other-name/SKILL.md"), good("named"));
    home.write(&format!("{skills}/no-description/SKILL.md"), "---\nname: no-description\n---\nx");
    home.write(&format!("{skills}/no-fields/SKILL.md"), "# Just text\n");
    home.write(&format!("{skills}/binary/SKILL.md"), b"---\nname: \xff\xfe");
    home.write(&format!("{skills}/nul/SKILL.md"), good("nul") + "\0");
    home.write(&format!("{skills}/huge/SKILL.md"), good("huge") + &"x".repeat(MAX_FILE_BYTES as usize));
    home.write(&format!("{skills}/read_file/SKILL.md"), good("read_file"));
    let pack = good("packed").replace("---\nDo", "allowed-tools: calculator raed_file\n---\nDo");
    home.write(&format!("{skills}/packed/SKILL.md"), pack);
    home.write(&format!("{skills}/windows/SKILL.md"), format!("\u{feff}{}", good("windows").replace('\n', "\r\n")));
    fs::create_dir_all(home.path(&format!("{skills}/odd/SKILL.md"))).expect("made");
    let loaded = home.load();
    assert_eq!(names(&loaded), ["good", "lower", "named", "packed", "windows"]);
    let said = home.said(&loaded);
    for expected in [
        "Error project/config/skills/binary/SKILL.md: is not UTF-8 text (byte 10 is the first",
        "Error project/config/skills/huge/SKILL.md: has more than 65536 bytes",
        "Error project/config/skills/no-description/SKILL.md: description is missing",
        "Error project/config/skills/no-fields/SKILL.md:1:1: does not begin with a line of ---",
        "Error project/config/skills/nul/SKILL.md: contains a NUL character",
        "Error project/config/skills/odd/SKILL.md: is no regular file",
        "Warning project/config/skills/other-name/SKILL.md:2:1: name is 'named' but the folder is 'other-name'",
        "Warning project/config/skills/packed/SKILL.md:4:1: allowed-tools names 'calculator', which is a pack and allows \
         nothing; name its tools: calculate",
        "Warning project/config/skills/packed/SKILL.md:4:1: allowed-tools names 'raed_file', which is no tool here and \
         allows nothing; did you mean read_file?",
        "Error project/config/skills/read_file/SKILL.md:2:1: name 'read_file' is the name of a tool",
    ] {
        assert!(said.iter().any(|s| s.starts_with(expected)), "{expected} is not in {said:#?}");
    }
}

#[test]
fn a_search_has_bounds() {
    let home = Home::new();
    let skills = "project/config/skills";
    home.skill(&format!("{skills}/1/2/3/4/five"));
    home.skill(&format!("{skills}/1/2/3/4/5/six"));
    // What lies in a skill's folder is the skill's, and hidden folders are nobody's.
    home.skill(&format!("{skills}/outer"));
    home.skill(&format!("{skills}/outer/inner"));
    home.skill(&format!("{skills}/.hidden/x"));
    home.skill(&format!("{skills}/node_modules/y"));
    let loaded = home.load();
    assert_eq!(names(&loaded), ["five", "outer"]);
    assert_eq!(loaded.get("outer").expect("there").source.files, ["inner/SKILL.md"]);
    let said = home.said(&loaded);
    assert_eq!(said, [format!("Note {skills}/1/2/3/4/5: lies 5 folders deep; what is below it was not looked into")]);

    for n in 0..2100 {
        fs::create_dir(home.path(&format!("{skills}/z{n}"))).expect("made");
    }
    let loaded = home.load();
    assert_eq!(names(&loaded), ["five", "outer"]);
    assert!(home.said(&loaded).iter().any(|s| s.contains("has more than 2000 folders")));
}

#[test]
fn links_do_not_lead_out() {
    let home = Home::new();
    let skills = home.path("project/config/skills");
    home.skill("elsewhere/secret");
    home.skill("project/config/skills/real/inside");
    symlink(home.path("elsewhere/secret"), skills.join("absolute")).expect("linked");
    symlink("../../../elsewhere/secret", skills.join("relative")).expect("linked");
    symlink("real/inside", skills.join("again")).expect("linked");
    symlink(".", skills.join("real/loop")).expect("linked");
    symlink("gone", skills.join("nowhere")).expect("linked");
    fs::create_dir(skills.join("file")).expect("made");
    symlink(home.path("elsewhere/secret/SKILL.md"), skills.join("file/SKILL.md")).expect("linked");
    let loaded = home.load();
    assert_eq!(names(&loaded), ["inside"]);
    let said = home.said(&loaded);
    for (severity, file, why) in [
        ("Warning", "absolute", "leads out of the folder of skills"),
        ("Warning", "relative", "leads out of the folder of skills"),
        ("Warning", "nowhere", "leads to nothing"),
        ("Error", "file/SKILL.md", "leads out of the folder of skills"),
    ] {
        let expected = format!("{severity} project/config/skills/{file}: {why}");
        assert!(said.iter().any(|s| s.starts_with(&expected)), "{expected} is not in {said:#?}");
    }
    // The folder itself may be a link: whoever made it decided so.
    symlink("project/config/skills/real", home.path("linked")).expect("linked");
    let root = SkillRoot { folder: home.path("linked"), scope: SkillScope::User };
    assert_eq!(names(&load_all(&[root], &[], &ToolRegistry::builtin())), ["inside"]);
}

#[test]
fn what_a_persona_names_is_there_or_is_told() {
    let home = Home::new();
    home.skill("project/config/skills/alpha");
    home.skill("project/config/skills/beta");
    let sub = "---\nname: root\ndescription: d\nmetadata:\n  posse-skills: alpha gamma\n---\nx";
    home.write("project/config/skills/root/SKILL.md", sub);
    let loaded = home.load();
    let resolve = |list: &[&str]| {
        let list: Vec<_> = list.iter().map(|name| (*name).to_owned()).collect();
        loaded.resolve(&list).map(|skills| skills.into_iter().map(|s| s.name).collect::<Vec<_>>())
    };
    assert_eq!(resolve(&[]), Ok(vec![]));
    assert_eq!(resolve(&["beta", "alpha"]), Ok(vec!["alpha".into(), "beta".into()]));
    assert_eq!(resolve(&["*"]).expect("all").len(), 3);
    let unknown = resolve(&["alpha", "bata"]).expect_err("refused").to_string();
    assert_eq!(unknown, "there is no skill 'bata'; did you mean beta? Of skills there are: alpha, beta, root");
    let said = home.said(&loaded);
    assert!(said[0].contains("metadata.posse-skills names 'gamma', but there is no skill 'gamma'"), "{said:?}");
}

#[test]
fn what_is_named_is_checked_alone() {
    let home = Home::new();
    home.skill("anywhere/good");
    home.write("anywhere/bad/SKILL.md", "---\nname: Bad\ndescription: d\nversion: 2\n---\nx");
    let check = |path: &str| {
        let loaded = load_path(&home.path(path), &ToolRegistry::builtin()).expect("there");
        (names(&loaded).join(" "), home.said(&loaded).len())
    };
    assert_eq!(check("anywhere/good/SKILL.md"), ("good".into(), 0));
    assert_eq!(check("anywhere/good"), ("good".into(), 0));
    assert_eq!(check("anywhere/bad"), ("Bad".into(), 3));
    assert_eq!(check("anywhere"), ("Bad good".into(), 3));
    assert!(load_path(&home.path("gone"), &ToolRegistry::builtin()).is_err());
}

#[test]
fn a_skill_knows_its_hash_and_its_files() {
    let home = Home::new();
    home.skill("project/config/skills/a");
    for file in ["references/units.md", "assets/x.bin", "scripts/run.sh", ".hidden"] {
        home.write(&format!("project/config/skills/a/{file}"), "x");
    }
    symlink("/etc/passwd", home.path("project/config/skills/a/link")).expect("linked");
    let loaded = home.load();
    let source = &loaded.skills[0].source;
    assert_eq!(source.files, ["assets/x.bin", "references/units.md", "scripts/run.sh"]);
    assert_eq!(source.sha256, posse_infra::skill::hash(good("a").as_bytes()));
    assert_eq!(loaded.problems.iter().filter(|p| p.problem.severity > Severity::Note).count(), 0);
}
