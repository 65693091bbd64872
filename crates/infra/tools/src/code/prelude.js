// What stands around a program: its functions, its console, a clock that stands still and random numbers that come again.
(function (call, log, end, functions, at, seed) {
  "use strict";
  const pending = new Map();

  const plain = (key, value) => {
    if (typeof value === "bigint") return String(value);
    if (value instanceof Map || value instanceof Set) return [...value];
    return value;
  };

  const shown = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return described(value);
    if (typeof value === "function") return `[function ${value.name}]`;
    if (typeof value !== "object" || value === null) return String(value);
    try {
      return JSON.stringify(value, plain) ?? String(value);
    } catch {
      return Object.prototype.toString.call(value);
    }
  };

  const described = (error) => {
    if (!(error instanceof Error)) return shown(error);
    const stack = String(error.stack ?? "").split("\n").filter((line) => line.includes("program.js"));
    return [`${error.name}: ${error.message}`, ...stack].join("\n").trimEnd();
  };

  const made = (tool) => (args = {}) =>
    new Promise((resolve, reject) => {
      const text = JSON.stringify(args, plain);
      if (text === undefined || text[0] !== "{") throw new TypeError("call it with one object: its arguments by name");
      pending.set(call(tool, text), [resolve, reject]);
    });

  const tools = Object.create(null);
  for (const { name, tool } of functions) tools[name] = made(tool);
  const declared = (found) => found.map(({ declaration }) => declaration).join("\n");
  tools.search ??= async (words) => {
    const wanted = String(words).toLowerCase().split(/\W+/).filter(Boolean);
    return declared(functions.filter(({ declaration }) => wanted.some((word) => declaration.toLowerCase().includes(word))));
  };
  tools.describe ??= async (name) => declared(functions.filter((one) => one.name === name));
  const names = functions.map(({ name }) => name).join(", ");
  const offered = new Proxy(Object.freeze(tools), {
    get(target, name) {
      if (name in target || typeof name === "symbol" || name === "then") return target[name];
      throw new ReferenceError(`there is no function tools.${name}; there are: ${names || "none"}`);
    },
  });

  const console = {};
  const line = (...values) => log(values.map(shown).join(" ").toWellFormed());
  for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = line;

  const RealDate = Date;
  function FrozenDate(...given) {
    if (!new.target) return new RealDate(at).toString();
    return Reflect.construct(RealDate, given.length ? given : [at], new.target);
  }
  FrozenDate.prototype = RealDate.prototype;
  FrozenDate.prototype.constructor = FrozenDate;
  Object.assign(FrozenDate, { now: () => at, parse: RealDate.parse, UTC: RealDate.UTC });

  // mulberry32
  Math.random = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  for (const [name, value] of Object.entries({ tools: offered, console, Date: FrozenDate })) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  const NAMES = { done: "", failed: "ToolError", refused: "ToolRefused", unknown: "OutcomeUnknown" };
  const settle = (number, came, category, text) => {
    const [resolve, reject] = pending.get(number) ?? [];
    pending.delete(number);
    if (came === "done") return resolve?.(text);
    const error = new Error(text);
    error.name = NAMES[came];
    if (category) error.category = category;
    reject?.(error);
  };

  const start = async (main) => {
    try {
      const value = await main();
      if (value === undefined) return end("nothing", "");
      const text = typeof value === "string" ? value : (JSON.stringify(value, plain) ?? shown(value));
      end("returned", text.toWellFormed());
    } catch (error) {
      let text = "it threw what cannot be shown";
      try {
        text = described(error);
      } catch {}
      end("threw", text.toWellFormed());
    }
  };

  return [start, settle];
});
