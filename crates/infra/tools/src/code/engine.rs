//! The process of a program: QuickJS, with nothing but a line to the worker.
//!
//! It has been confined before it begins. What bounds its processor and its time is outside; what it looks at itself is only
//! so that a bound has a name, and what the program can do to this process it can do only to itself.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use posse_core::tool::ToolErrorCategory;
use posse_core::tool::calls::{CallResult, Came, MadeCall};
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::{Array, CatchResultExt as _, CaughtError, Context, Ctx, Function, Runtime};

use super::memory::Bounded;
use super::wire::{Bound, Bounds, Program, Said, hear, say};

/// Runs around each program.
const PRELUDE: &str = include_str!("prelude.js");

const NEVER_SETTLED: &str = "the program waits for a promise that nothing settles any more. Await calls of tools, and \
                             nothing else";

/// All of the language but clocks, and what tells when memory is collected.
type Language = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// The line to the worker, which is this process's standard output.
struct Worker;

impl Read for Worker {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdout(), buffer)?)
    }
}

impl Write for Worker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The life of the process.
pub(crate) fn live() -> ! {
    let Ok(program) = hear::<Program>(Worker) else { std::process::exit(2) };
    let said = run(&program).unwrap_or_else(|error| Said::Threw(format!("the engine could not begin: {error}")));
    leave(&said)
}

/// Says the last that there is to say.
fn leave(said: &Said) -> ! {
    let told = say(Worker, said);
    std::process::exit(if told.is_ok() { 0 } else { 2 })
}

fn memory_used_up() -> ! {
    leave(&Said::Met(Bound::Memory))
}

/// What the program has done since its last result, and altogether.
#[derive(Default)]
struct Done {
    calls: Vec<MadeCall>,
    made: u32,
    logged: usize,
    ended: Option<Said>,
}

fn run(program: &Program) -> rquickjs::Result<Said> {
    let Bounds { memory, stack, .. } = program.bounds;
    let runtime = Runtime::new_with_alloc(Bounded::new(memory, memory_used_up))?;
    runtime.set_max_stack_size(stack);
    let context = Context::builder().with::<Language>().build(&runtime)?;
    let said = context.with(|cx| live_in(&cx, program));
    // Taking it all down would be the program's time, and may be made to take long.
    std::mem::forget((context, runtime));
    said
}

fn live_in(cx: &Ctx<'_>, program: &Program) -> rquickjs::Result<Said> {
    let done = Rc::new(RefCell::new(Done::default()));
    let (start, settle) = surroundings(cx, program, &done)?;
    let mut options = EvalOptions::default();
    (options.strict, options.filename) = (false, Some("program.js".into()));
    // In the first line, so that lines are counted as the program's own.
    let source = format!("(async () => {{{}\n}})", program.source);
    match cx.eval_with_options::<Function<'_>, _>(source, options).catch(cx) {
        Ok(main) => start.call::<_, ()>((main,))?,
        Err(error) => return Ok(Said::Threw(told(&error))),
    }
    let mut answered = 0;
    loop {
        while cx.execute_pending_job() {}
        let calls = {
            let mut done = done.borrow_mut();
            if done.made == answered {
                return Ok(done.ended.take().unwrap_or_else(|| Said::Threw(NEVER_SETTLED.into())));
            }
            std::mem::take(&mut done.calls)
        };
        let heard = say(Worker, &Said::Made(calls)).and_then(|()| hear::<CallResult>(Worker));
        let Ok(CallResult { number, came, text }) = heard else { std::process::exit(2) };
        answered += 1;
        let (came, category) = words(came);
        settle.call::<_, ()>((number, came, category, text))?;
    }
}

/// What stands around the program; gives how it is started, and how a call of it gets its result.
fn surroundings<'js>(
    cx: &Ctx<'js>,
    program: &Program,
    done: &Rc<RefCell<Done>>,
) -> rquickjs::Result<(Function<'js>, Function<'js>)> {
    let Bounds { calls: most_calls, output, .. } = program.bounds;
    let of_calls = Rc::clone(done);
    let call = Function::new(cx.clone(), move |tool: String, arguments: String| {
        let mut done = of_calls.borrow_mut();
        if done.made as usize >= most_calls {
            leave(&Said::Met(Bound::Calls));
        }
        if arguments.len() > output {
            leave(&Said::Met(Bound::Output));
        }
        done.calls.push(MadeCall { tool, arguments });
        done.made += 1;
        done.made - 1
    })?;
    let of_logs = Rc::clone(done);
    let log = Function::new(cx.clone(), move |line: String| {
        let mut done = of_logs.borrow_mut();
        done.logged = done.logged.saturating_add(line.len() + 1);
        if done.logged > output {
            leave(&Said::Met(Bound::Output));
        }
        if say(Worker, &Said::Log(line)).is_err() {
            std::process::exit(2);
        }
    })?;
    let of_end = Rc::clone(done);
    let end = Function::new(cx.clone(), move |how: String, text: String| {
        if text.len() > output {
            leave(&Said::Met(Bound::Output));
        }
        of_end.borrow_mut().ended.get_or_insert(match how.as_str() {
            "returned" => Said::Returned(Some(text)),
            "nothing" => Said::Returned(None),
            _ => Said::Threw(text),
        });
    })?;
    let functions = cx.json_parse(serde_json::to_string(&program.functions).unwrap_or_default())?;
    let prelude: Function<'js> = cx.eval(PRELUDE)?;
    let both: Array<'js> = prelude.call((call, log, end, functions, program.at as f64, program.seed))?;
    Ok((both.get(0)?, both.get(1)?))
}

/// How a call ended, as the prelude knows it, and of what kind its failure was.
fn words(came: Came) -> (&'static str, Option<String>) {
    match came {
        Came::Done => ("done", None),
        Came::Failed(category) => ("failed", Some(name_of(category))),
        Came::Refused => ("refused", None),
        Came::Unknown => ("unknown", None),
    }
}

fn name_of(category: ToolErrorCategory) -> String {
    match serde_json::to_value(category) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn told(error: &CaughtError<'_>) -> String {
    match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let stack = exception.stack().unwrap_or_default();
            format!("SyntaxError: {message}\n{}", stack.trim_end()).trim_end().to_owned()
        }
        other => other.to_string(),
    }
}
