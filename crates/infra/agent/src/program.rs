//! Programs of agents: their calls are made and their results given as the run machine says, whichever worker has them.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use posse_core::job::JobId;
use posse_core::model::CallRequest;
use posse_core::run::machine::{Effect, Input, Step, step};
use posse_core::run::{OpenCall, Run};
use posse_core::stop::StopReason;
use posse_core::tool::calls::{Beginning, CallResult, Calls, MadeCall};
use posse_core::tool::{Reader, ToolError, ToolErrorCategory, ToolOutput};
use posse_core::worker::executor::{Halt, JobContext};
use tokio::sync::{mpsc, oneshot};

use super::tasks::{Ran, Told};
use super::{GenericAgentExecutor, TOOL_GRACE};

/// What a program asks of whoever has its run.
enum Asked {
    Begin(oneshot::Sender<Beginning>),
    Make(Vec<MadeCall>, oneshot::Sender<CallResult>),
}

/// Where a program asks.
struct Desk(mpsc::UnboundedSender<Asked>);

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Desk {
    async fn ask<T>(&self, asking: impl FnOnce(oneshot::Sender<T>) -> Asked) -> Result<T, ToolError> {
        let gone = || ToolError::new(ToolErrorCategory::Interrupted, "the program is not gone on with here");
        let (answers, answer) = oneshot::channel();
        self.0.send(asking(answers)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

#[async_trait]
impl Calls for Desk {
    async fn begin(&self) -> Result<Beginning, ToolError> {
        self.ask(Asked::Begin).await
    }

    async fn make(&self, calls: Vec<MadeCall>) -> Result<CallResult, ToolError> {
        self.ask(|answers| Asked::Make(calls, answers)).await
    }
}

/// A call, what it gave, and after how many milliseconds.
type Ended = (String, Result<ToolOutput, ToolError>, u64);
type Running<'a> = Pin<Box<dyn Future<Output = Ended> + Send + 'a>>;

/// One life of a program.
struct Life<'a> {
    /// Its process; none once that has ended.
    process: Option<Running<'a>>,
    /// What it gave, once it has ended.
    result: Option<Result<ToolOutput, ToolError>>,
    calls: FuturesUnordered<Running<'a>>,
    /// Those that were started in this life.
    started: BTreeSet<String>,
    /// How many calls it has made in this life, and how many results it has been given.
    made: usize,
    given: usize,
    /// Where it waits for the next result.
    waits: Option<oneshot::Sender<CallResult>>,
    /// Jobs that calls of it wait for.
    waits_for: Vec<JobId>,
    /// How long calls of it ran, and since when some do.
    in_calls: Duration,
    calls_since: Option<Instant>,
}

impl Life<'_> {
    /// Ends the process, where it still runs. Nothing is lost: what it computed follows from its calls.
    fn end(&mut self, result: Result<ToolOutput, ToolError>) {
        (self.process, self.waits) = (None, None);
        self.result.get_or_insert(result);
    }

    fn take_time(&mut self) {
        if self.calls.is_empty() {
            self.in_calls += self.calls_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.calls_since.get_or_insert_with(Instant::now);
        }
    }

    /// Gives the program its next result, if there is one. Why it cannot be gone on with, if it waits for one that never
    /// comes.
    fn give(&mut self, run: &Run) -> Result<(), Halt> {
        let Some(program) = run.program().filter(|_| self.waits.is_some()) else { return Ok(()) };
        match program.result(self.given) {
            Some(result) if (result.number as usize) < self.made => {
                self.given += 1;
                // Should the process be gone, its end comes next.
                let _ = self.waits.take().map(|waits| waits.send(result));
            }
            _ if !self.calls.is_empty() || !self.waits_for.is_empty() => {}
            _ => match program.left_out(self.made) {
                Some(why) => self.end(Err(ToolError::new(ToolErrorCategory::Conflict, why))),
                None => return Err(Halt::Broken("a program waits for a call that nobody runs".into())),
            },
        }
        Ok(())
    }
}

impl GenericAgentExecutor {
    /// Runs a program to its end, or until its run waits for other jobs. Each result of a call is committed before the
    /// program is given it, with the start of the calls that follow.
    pub(super) async fn run_program(&self, cx: &JobContext, run: &mut Run, call: OpenCall) -> Result<Ran, Halt> {
        cx.still_ours().await?;
        let began = Instant::now();
        let (asks, mut asked) = mpsc::unbounded_channel();
        let told = Told { calls: Some(Arc::new(Desk(asks))), ..self.told(cx, run) };
        let call_id = call.request.id.clone();
        let opening = run.opening().cloned();
        let mut life = Life {
            process: Some(Box::pin(async move { self.run_call(cx, opening, &call, told).await })),
            result: None,
            calls: FuturesUnordered::new(),
            started: BTreeSet::new(),
            made: 0,
            given: 0,
            waits: None,
            waits_for: Vec::new(),
            in_calls: Duration::ZERO,
            calls_since: None,
        };
        let overdue = async {
            if cx.stop.stopped().await != StopReason::LeaseLost {
                tokio::time::sleep(TOOL_GRACE).await;
            }
        };
        tokio::pin!(overdue);
        loop {
            let Life { process, calls, .. } = &mut life;
            let process = async {
                match process {
                    Some(process) => process.await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                Some(ended) = calls.next() => {
                    let next = self.call_ended(cx, run, &mut life.waits_for, ended).await?;
                    next.unwrap_or(Step { entries: Vec::new(), effect: Effect::Wait })
                }
                Some(asked) = asked.recv() => self.asked(cx, run, &mut life, &call_id, asked).await?,
                (_, result, _) = process => {
                    let left_out = run.program().and_then(|program| program.left_out(life.made));
                    let is_cut_off = matches!(&result, Err(error) if error.category == ToolErrorCategory::Interrupted);
                    if is_cut_off {
                        life.end(result);
                        // It is run again, with all that it asked for.
                        Step { entries: Vec::new(), effect: Effect::Wait }
                    } else {
                        let diverged = left_out.map(|why| Err(ToolError::new(ToolErrorCategory::Conflict, why)));
                        life.end(diverged.unwrap_or(result));
                        committed(cx, run, Input::ProgramStopped).await?
                    }
                }
                () = &mut overdue => return Err(cx.check().err().unwrap_or(StopReason::Shutdown.into())),
            };
            match next.effect {
                Effect::RunCalls(calls) if life.result.is_none() => self.start(cx, run, &mut life, calls).await?,
                Effect::RunCalls(_) | Effect::Wait => {}
                Effect::StopProgram(why) => {
                    life.end(Err(ToolError::new(ToolErrorCategory::Conflict, why)));
                    committed(cx, run, Input::ProgramStopped).await?;
                }
                // The attempt cannot go on.
                _ => return Ok(Ran::Step(next)),
            }
            life.give(run)?;
            life.take_time();
            if !life.calls.is_empty() {
                continue;
            }
            if let Some(result) = life.result.take() {
                let ms = began.elapsed().saturating_sub(life.in_calls).as_millis() as u64;
                let is_cut_off = matches!(&result, Err(error) if error.category == ToolErrorCategory::Interrupted);
                let opening = run.opening().cloned();
                let check = |call: &CallRequest| self.check(opening.as_deref(), call);
                let ended = step(run, Input::CallEnded { call_id, result, ms, check: &check });
                if is_cut_off {
                    return Err(cx.check().err().unwrap_or(StopReason::Shutdown.into()));
                }
                return Ok(Ran::Step(ended));
            }
            if life.waits.is_some() && !life.waits_for.is_empty() {
                return Ok(Ran::Waits(life.waits_for));
            }
        }
    }

    /// Takes in the end of a call; none where it waits for other jobs.
    async fn call_ended(
        &self,
        cx: &JobContext,
        run: &mut Run,
        waits_for: &mut Vec<JobId>,
        (call_id, result, ms): Ended,
    ) -> Result<Option<Step>, Halt> {
        if let Ok(ToolOutput { waits_for: jobs, .. }) = &result
            && !jobs.is_empty()
        {
            waits_for.extend(jobs);
            return Ok(None);
        }
        let opening = run.opening().cloned();
        let check = |call: &CallRequest| self.check(opening.as_deref(), call);
        let is_cut_off = matches!(&result, Err(error) if error.category == ToolErrorCategory::Interrupted);
        let next = committed(cx, run, Input::CallEnded { call_id, result, ms, check: &check }).await?;
        match is_cut_off {
            true => Err(cx.check().err().unwrap_or(StopReason::Shutdown.into())),
            false => Ok(Some(next)),
        }
    }

    async fn asked(
        &self,
        cx: &JobContext,
        run: &mut Run,
        life: &mut Life<'_>,
        call_id: &str,
        asked: Asked,
    ) -> Result<Step, Halt> {
        match asked {
            Asked::Begin(answers) => {
                let begins = Input::ProgramBegins { call_id: call_id.to_owned(), at: cx.now() };
                let next = committed(cx, run, begins).await?;
                let at = run.program().map(|program| program.at).unwrap_or_default();
                let _ = answers.send(Beginning { at, functions: run.functions() });
                Ok(next)
            }
            Asked::Make(calls, answers) => {
                let from = life.made;
                life.made += calls.len();
                life.waits = Some(answers);
                let request = |MadeCall { tool: name, arguments }| CallRequest {
                    id: String::new(),
                    name,
                    arguments,
                    extra: None,
                };
                let calls = calls.into_iter().map(request).collect();
                let opening = run.opening().cloned();
                let check = |call: &CallRequest| self.check(opening.as_deref(), call);
                committed(cx, run, Input::Called { from, calls, check: &check }).await
            }
        }
    }

    /// Starts those of the calls that do not run yet.
    async fn start<'a>(
        &'a self,
        cx: &'a JobContext,
        run: &Run,
        life: &mut Life<'a>,
        calls: Vec<OpenCall>,
    ) -> Result<(), Halt> {
        cx.still_ours().await?;
        for call in calls {
            if life.started.insert(call.request.id.clone()) {
                let opening = run.opening().cloned();
                let told = Told { reader: Reader { computes: true, ..Reader::default() }, ..self.told(cx, run) };
                life.calls.push(Box::pin(async move { self.run_call(cx, opening, &call, told).await }));
            }
        }
        Ok(())
    }
}

/// Takes a step, and commits what it gives. The effect is what is left to perform.
fn committed<'a>(
    cx: &'a JobContext,
    run: &mut Run,
    input: Input<'_>,
) -> impl Future<Output = Result<Step, Halt>> + Send + use<'a> {
    let seq = run.next_seq();
    let Step { entries, effect } = step(run, input);
    async move {
        cx.append(seq, entries).await?;
        Ok(Step { entries: Vec::new(), effect })
    }
}
