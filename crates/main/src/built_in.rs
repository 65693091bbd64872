//! What is used where a project has no folder of its own for it; `posse init` writes it.

/// By role.
pub const PERSONAS: [(&str, &str); 4] = [
    ("researcher", include_str!("../../../config/personas/researcher.json")),
    ("reviewer", include_str!("../../../config/personas/reviewer.json")),
    ("scribe", include_str!("../../../config/personas/scribe.json")),
    ("triager", include_str!("../../../config/personas/triager.json")),
];

/// By name.
pub const SKILLS: [(&str, &str); 1] =
    [("summarise-files", include_str!("../../../config/skills/summarise-files/SKILL.md"))];
