//! `finish`: the end of a run. The run machine knows the name and ends the run itself, so this is
//! only how the call looks; run outside of a run, it gives the answer back.

use posse_core::run::finish::{FINISH, FinishArgs, spec};
use posse_core::tool::{EffectClass, ToolContext};

use super::FnTool;

pub(super) fn tool() -> FnTool {
    FnTool::new(FINISH, &spec().description, EffectClass::Pure, |_cx: ToolContext, args: FinishArgs| async move {
        Ok(args.final_summary.into())
    })
}
