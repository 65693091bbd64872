//! How programs are offered to an agent: its tools as functions, declared in TypeScript.

use std::collections::BTreeSet;

use super::Run;
use crate::skill::READ_SKILL_FILE;
use crate::skill::shelf::FIND_SKILLS;
use crate::tool::calls::{EXECUTE_CODE, Function};
use crate::tool::{OfferedTool, ToolSpec};

mod typescript;

use typescript::type_of;

/// With more functions than this they are not declared in the tool's description, but searched for by the program.
const MAX_DECLARED: usize = 30;

/// Names that the program's own functions have.
const OWN: [&str; 2] = ["describe", "search"];

/// Words that a program would stumble over.
const RESERVED: [&str; 41] = [
    "arguments",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
];

/// The tools that a program may call, each under a name of its own. No program runs another, and what changes the
/// conversation of whoever calls is none of a program's.
pub fn functions<'a>(tools: impl Iterator<Item = &'a OfferedTool>) -> Vec<Function> {
    let mut taken: BTreeSet<String> = OWN.iter().map(|name| (*name).to_owned()).collect();
    let is_callable = |tool: &&OfferedTool| ![EXECUTE_CODE, FIND_SKILLS, READ_SKILL_FILE].contains(&&*tool.spec.name);
    let mut functions = Vec::new();
    for tool in tools.filter(is_callable) {
        let mut name = identifier(&tool.spec.name);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        let declaration = format!("{name}(args: {}): Promise<string>;", type_of(&tool.spec.parameters));
        functions.push(Function { name, tool: tool.spec.name.clone(), declaration });
    }
    functions
}

fn identifier(tool: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let mut name: String = tool.chars().map(legal).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    if RESERVED.contains(&&*name) {
        name.push('_');
    }
    name
}

/// Has the tool that runs programs say which functions they have, if it is among these.
pub fn offer(tools: &mut [OfferedTool]) {
    let functions = functions(tools.iter());
    if let Some(tool) = tools.iter_mut().find(|tool| tool.spec.name == EXECUTE_CODE) {
        tool.spec = offered(&tool.spec, &functions);
    }
}

fn offered(spec: &ToolSpec, functions: &[Function]) -> ToolSpec {
    let mut spec = spec.clone();
    let declared = match functions.len() {
        0 => "A program of yours has no functions: it computes.".to_owned(),
        1..=MAX_DECLARED => {
            let lines: Vec<_> = functions.iter().map(|function| format!("  {}", function.declaration)).collect();
            format!("declare const tools: {{\n{}\n}};", lines.join("\n"))
        }
        _ => {
            let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
            format!(
                "declare const tools: {{\n  search(words: string): Promise<string>; // declarations in which one of the words \
                 stands\n  describe(name: string): Promise<string>;\n}}; // and these functions: {}",
                names.join(", ")
            )
        }
    };
    spec.description = format!("{}\n{declared}", spec.description);
    spec
}

impl Run {
    /// What a program of the conversation at work may call.
    pub fn functions(&self) -> Vec<Function> {
        functions(self.tools())
    }
}
