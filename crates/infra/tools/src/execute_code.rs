//! `execute_code`: a program of an agent, in a process that can do nothing but compute and call the agent's other tools.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use posse_core::stop::{Stop, StopReason};
use posse_core::text::{count, has_too_many, plural};
use posse_core::tool::calls::{Beginning, Calls, EXECUTE_CODE, MAX_PROGRAM_CALLS};
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::code::{Bound, Bounds, Line, Program, Said};
use super::failure::{denied, failed, invalid, over_limit, unfit};
use super::sandbox::{Computing, End, HALF, Kept, Limit};

/// What the process of a program has of memory beside what is the program's own.
const ENGINE_MB: u64 = 192;

/// What one program may use. 1 MB is 1,048,576 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeLimits {
    /// Seconds that it may compute.
    pub processor_seconds: u64,
    /// Seconds that it may take altogether, with its calls.
    pub seconds: u64,
    pub memory_mb: u64,
    /// Kilobytes of stack: how deep functions may call each other.
    pub stack_kb: u64,
    pub source_kb: u64,
    /// Kilobytes that it may log, that it may return, and that it may pass to one call.
    pub output_kb: u64,
}

impl Default for CodeLimits {
    fn default() -> Self {
        CodeLimits { processor_seconds: 5, seconds: 600, memory_mb: 64, stack_kb: 512, source_kb: 256, output_kb: 1024 }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The program: JavaScript, the body of an asynchronous function. It ends with: return VALUE;
    #[schemars(length(min = 1))]
    code: String,
}

/// The tool, of programs with these limits.
pub(super) fn tool(limits: CodeLimits) -> FnTool {
    let CodeLimits { processor_seconds, seconds, memory_mb, .. } = limits;
    let description = format!(
        "Runs a JavaScript program and gives what it returns and what it logs with console.log. Use it to compute over data \
         instead of reading all of it, and to make many calls at once. Other tools are asynchronous functions in it: await \
         tools.NAME({{...}}) gives the text that the tool gives, and throws where the tool fails. It has no files, no \
         network and no timers of its own; its clock stands still, and its random numbers are the same on each run. It \
         may compute for {processor_seconds} s, take {seconds} s with its calls, use {memory_mb} MB of memory and make {}. \
         Of a long output you see the first and the last {} KB.",
        plural(MAX_PROGRAM_CALLS as u64, "call"),
        HALF / 1024
    );
    // Run again it makes the calls that it made, each of which is known by its own effect key.
    let tool =
        FnTool::new(EXECUTE_CODE, &description, EffectClass::Idempotent, move |cx: ToolContext, args| async move {
            execute_code(limits, &cx, args).await
        });
    tool.writing(Writes::Nothing)
}

async fn execute_code(limits: CodeLimits, cx: &ToolContext, Args { code }: Args) -> Result<ToolOutput, ToolError> {
    let most = kb(limits.source_kb);
    if code.len() > most {
        let too_many = has_too_many(code.len(), "byte", most);
        return Err(over_limit(format!(
            "the program {too_many}, the limit on its source. Make it shorter. Nothing was run"
        )));
    }
    if code.trim().is_empty() || code.contains('\0') {
        return Err(invalid("the program is empty or has a NUL in it. Nothing was run"));
    }
    let Beginning { at, functions } = match &cx.calls {
        Some(calls) => calls.begin().await?,
        None => Beginning { at: now(), functions: Vec::new() },
    };
    let bounds = Bounds {
        memory: limits.memory_mb as usize * 1024 * 1024,
        stack: kb(limits.stack_kb),
        calls: MAX_PROGRAM_CALLS,
        output: kb(limits.output_kb),
    };
    let program = Program { source: code, functions, at, seed: seed(&cx.effect_key), bounds };
    let left = cx.time_left.unwrap_or(Duration::MAX);
    let time = Duration::from_secs(limits.seconds).min(left);
    let began = Instant::now();
    let (last, end, log) = match Computing::start(limits.memory_mb + ENGINE_MB, time, limits.processor_seconds).await {
        Err(end) => (None, Ok(end), Kept::default()),
        Ok((process, socket)) => talk(process, Line(socket), &program, cx.calls.as_deref(), &cx.stop).await?,
    };
    let ended = Ended { last, end, log, took: began.elapsed(), limits, time, is_job_over: time == left };
    ended.told()
}

/// What the process said last, how its sandbox says it ended, and what the program logged.
type Talked = (Option<Said>, Result<End, StopReason>, Kept);

/// Makes the calls of the program, to its end. Its process has ended when this returns.
async fn talk(
    process: Computing,
    mut line: Line,
    program: &Program,
    calls: Option<&dyn Calls>,
    stop: &Stop,
) -> Result<Talked, ToolError> {
    let standing = Standing::default();
    let mut log = Kept::default();
    let (last, (end, stderr)) = {
        let talking = converse(&mut line, program, calls, &standing, &mut log);
        let ending = process.end(stop);
        tokio::pin!(talking, ending);
        tokio::select! {
            biased;
            last = &mut talking => (last?, ending.await),
            ended = &mut ending => {
                standing.has_ended.store(true, Ordering::Relaxed);
                // Whatever it said is there to be heard, but no call is made for one that has ended.
                let last = if standing.is_waiting.load(Ordering::Relaxed) { None } else { talking.await? };
                (last, ended)
            }
        }
    };
    if !stderr.is_empty() {
        tracing::warn!("the process of a program said: {stderr}");
    }
    Ok((last, end, log))
}

#[derive(Default)]
struct Standing {
    /// Whether the program waits for a result.
    is_waiting: AtomicBool,
    has_ended: AtomicBool,
}

/// Hears the program and makes its calls. Gives the last it says, if it says a last.
async fn converse(
    line: &mut Line,
    program: &Program,
    calls: Option<&dyn Calls>,
    standing: &Standing,
    log: &mut Kept,
) -> Result<Option<Said>, ToolError> {
    if line.begin(program).await.is_err() {
        return Ok(None);
    }
    loop {
        match line.hear().await {
            Ok(Said::Log(text)) => log.take(format!("{text}\n").as_bytes()),
            Ok(Said::Made(made)) => {
                let Some(calls) = calls.filter(|_| !standing.has_ended.load(Ordering::Relaxed)) else {
                    return Ok(None);
                };
                standing.is_waiting.store(true, Ordering::Relaxed);
                let result = calls.make(made).await?;
                standing.is_waiting.store(false, Ordering::Relaxed);
                if line.answer(&result).await.is_err() {
                    return Ok(None);
                }
            }
            Ok(last) => return Ok(Some(last)),
            Err(_) => return Ok(None),
        }
    }
}

/// How a program ended.
struct Ended {
    last: Option<Said>,
    end: Result<End, StopReason>,
    log: Kept,
    took: Duration,
    limits: CodeLimits,
    time: Duration,
    is_job_over: bool,
}

impl Ended {
    /// What the model is told.
    fn told(self) -> Result<ToolOutput, ToolError> {
        let log = match self.log.is_empty() {
            true => String::new(),
            false => format!("[log]\n{}", self.log.shown().trim_end_matches('\n')),
        };
        let with_log = |text: String| {
            [text, log.clone()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
        };
        let limit = |what: String| {
            let text =
                format!("ended after {:.1} s: {what}. What its calls had done stays done", self.took.as_secs_f64());
            Err(over_limit(with_log(text)))
        };
        let CodeLimits { processor_seconds, memory_mb, stack_kb, output_kb, .. } = self.limits;
        let computed = || limit(format!("it computed for more than {processor_seconds} s, the limit (processor time)"));
        let memory = || limit(format!("it used more than {memory_mb} MB of memory, the limit (memory)"));
        match (self.last, self.end) {
            (_, Err(reason)) => Err(ToolError::new(
                ToolErrorCategory::Interrupted,
                format!("The program was ended ({reason:?}). It runs again from its calls that are known"),
            )),
            (Some(Said::Returned(Some(value))), _) => Ok(with_log(cut(&value)).into()),
            (Some(Said::Returned(None)), _) if log.is_empty() => {
                Ok("The program returned and logged nothing. End it with \
                                                                      return VALUE; to see a result."
                    .to_owned()
                    .into())
            }
            (Some(Said::Returned(None)), _) => Ok(log.into()),
            (Some(Said::Threw(error)), _) if error.contains(TOO_DEEP) => limit(format!(
                "its functions called each other deeper than {} KB of stack, the limit (stack): {}",
                count(stack_kb),
                cut(&error)
            )),
            (Some(Said::Threw(error)), _) => Err(failed(with_log(format!("The program failed. {}", cut(&error))))),
            (Some(Said::Met(Bound::Memory)), _) => memory(),
            (Some(Said::Met(Bound::Calls)), _) => {
                limit(format!("it made more than {}, the limit (calls)", plural(MAX_PROGRAM_CALLS as u64, "call")))
            }
            (Some(Said::Met(Bound::Output)), _) => {
                limit(format!("it logged, returned or passed on more than {} KB, the limit (output)", count(output_kb)))
            }
            (_, Ok(End::Limited(Limit::Time))) => {
                let seconds = self.time.as_secs();
                let whose =
                    if self.is_job_over { "what was left of the time of the whole task" } else { "the limit (time)" };
                limit(format!("it took more than {seconds} s with its calls, {whose}"))
            }
            (_, Ok(End::Signalled(signal))) if [libc::SIGXCPU, libc::SIGKILL].contains(&signal) => computed(),
            (_, Ok(End::Limited(_))) => memory(),
            (_, Ok(End::Signalled(signal))) => Err(failed(with_log(format!(
                "The engine that ran the program broke down (signal {signal}). That is no fault of a tool; write it differently"
            )))),
            (_, Ok(End::Exited(code))) => {
                Err(failed(with_log(format!("The process of the program ended without a word (exit code {code})"))))
            }
            (_, Ok(End::Refused(why))) => {
                Err(denied(format!("Programs cannot run here: {why}. Nothing was run; go on without.")))
            }
            (_, Ok(End::Lacking(why))) => Err(unfit(format!("a program could not be started: {why}"))),
        }
    }
}

/// What the engine says where functions call each other too deep.
const TOO_DEEP: &str = "Maximum call stack size exceeded";

/// As much of it as a model is shown.
fn cut(text: &str) -> String {
    let mut kept = Kept::default();
    kept.take(text.as_bytes());
    kept.shown()
}

fn kb(kb: u64) -> usize {
    kb as usize * 1024
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Where random numbers begin: the same for each run of a call.
fn seed(effect_key: &str) -> u32 {
    // FNV-1a
    effect_key.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
