//! `barrier()` orders LDS; it orders memory on NVIDIA's processors only (device.h). So no kernel may write
//! memory and, after a barrier, read it through the same pointer, unless that barrier is a
//! `memory_barrier()`.
//!
//! This test reads the sources as text: functions, their pointers, and the use of a kernel's pointers in the
//! functions that they are passed to. It identifies a pointer by its name, not by its address: an operand
//! that is read through one pointer and written through another (an operation in place) is not detected.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Function of the sources.
#[derive(Debug)]
struct Function {
    /// Names of its parameters in order; below, those that are pointers to writable memory.
    parameters: Vec<String>,
    pointers: BTreeSet<String>,
    kernel: bool,
    /// Tokens of the body.
    body: Vec<String>,
}

/// Use of a pointer by a function; events are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Write,
    Read,
    Barrier,
    Fence,
}

/// Returns names, numbers and signs, without comments. Continued lines of macros are joined.
fn tokens(text: &str) -> Vec<String> {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or("").trim_end_matches('\\')).collect();
    let mut found: Vec<String> = Vec::new();
    let mut joins = false;
    for c in code.join("\n").chars() {
        let word = c.is_alphanumeric() || c == '_';
        match found.last_mut() {
            Some(last) if word && joins => last.push(c),
            _ if c.is_whitespace() => {}
            _ => found.push(c.into()),
        }
        joins = word;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the index of the bracket that closes the one at `open`.
fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len() - 1
}

/// Returns the parts between commas outside of brackets and of a template's `<` and `>`.
fn parts(tokens: &[String]) -> Vec<&[String]> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[begin..i]);
                begin = i + 1;
            }
            _ => {}
        }
    }
    if begin < tokens.len() {
        found.push(&tokens[begin..]);
    }
    found
}

/// Returns functions by name; functions of several structures with the same name follow each other.
fn functions(text: &str) -> BTreeMap<String, Vec<Function>> {
    let tokens = tokens(text);
    // Parameter lists defined by macros.
    let mut lists: BTreeMap<&str, &[String]> = BTreeMap::new();
    for (i, window) in tokens.windows(4).enumerate() {
        if window[0] == "#" && window[1] == "define" && window[2].ends_with("_OPERANDS") {
            let len = tokens[i + 3..].iter().take_while(|t| *t != "#").count();
            lists.insert(&window[2], &tokens[i + 3..i + 3 + len]);
        }
    }
    let mut found: BTreeMap<String, Vec<Function>> = BTreeMap::new();
    for i in 1..tokens.len() {
        let (name, open) = (&tokens[i - 1], i);
        let statements = ["if", "constexpr", "for", "while", "switch"];
        if tokens[open] != "(" || !is_name(name) || statements.contains(&name.as_str()) {
            continue;
        }
        let end = closing(&tokens, open);
        let after = end + 1 + usize::from(tokens.get(end + 1).is_some_and(|t| t == "const"));
        if tokens.get(after).is_none_or(|t| t != "{") {
            continue;
        }
        let list = &tokens[open + 1..end];
        let list = list.first().and_then(|t| lists.get(t.as_str()).copied()).unwrap_or(list);
        let (mut parameters, mut pointers) = (Vec::new(), BTreeSet::new());
        for parameter in parts(list) {
            let name = parameter.iter().rev().find(|t| is_name(t)).cloned().unwrap_or_default();
            if parameter.iter().any(|t| t == "*") && !parameter.iter().any(|t| t == "const") {
                pointers.insert(name.clone());
            }
            parameters.push(name);
        }
        let before = tokens[..i].iter().rev().take_while(|t| !matches!(t.as_str(), ";" | "{" | "}"));
        let kernel = before.into_iter().any(|t| t == "KERNEL");
        let body = tokens[after + 1..closing(&tokens, after)].to_vec();
        found.entry(name.clone()).or_default().push(Function { parameters, pointers, kernel, body });
    }
    found
}

/// Returns true if the tokens at `i` are an assignment: `=`, or `+=` and the like, but no comparison.
fn is_assignment(body: &[String], i: usize) -> bool {
    let token = |i: usize| body.get(i).map_or("", String::as_str);
    let i = i + usize::from("+-*/|&^".contains(token(i)) && token(i + 1) == "=" && !token(i).is_empty());
    token(i) == "=" && token(i + 1) != "="
}

/// Returns true if the token at `i` is one of these names, and not that of a member.
fn is_one_of(tokens: &[String], i: usize, names: &BTreeSet<&str>) -> bool {
    let before = |back: usize| i.checked_sub(back).map_or("", |at| &tokens[at]);
    names.contains(tokens[i].as_str()) && before(1) != "." && [before(2), before(1)] != ["-", ">"]
}

/// Returns the pointer that is declared with a value derived from the pointer at `i`:
/// `T *name = pointer + ...`.
fn made_of_it(body: &[String], i: usize) -> Option<&str> {
    let begin = body[..i].iter().rposition(|t| matches!(t.as_str(), ";" | "{" | "}")).map_or(0, |at| at + 1);
    let assigned = begin + body[begin..i].iter().position(|t| t == "=")?;
    let declared = assigned >= begin + 2 && body[assigned - 2] == "*";
    (declared && body.get(i + 1).is_none_or(|t| t != "[")).then(|| body[assigned - 1].as_str())
}

/// Returns the use of the pointer at `i`: `pointer[...]`, `*(T *)(pointer + ...)` or `*(T *)pointer`.
fn access(body: &[String], i: usize) -> Option<Event> {
    let is = |at: usize, sign: &str| body.get(at).is_some_and(|t| t == sign);
    let mut end = i + 1;
    while is(end, "[") {
        end = closing(body, end) + 1;
    }
    if end == i + 1 {
        let open = i.checked_sub(1).filter(|&at| is(at, "("));
        let cast = open.unwrap_or(i).checked_sub(1)?;
        if !is(cast, ")") {
            return None;
        }
        end = open.map_or(i, |open| closing(body, open)) + 1;
    }
    Some(if is_assignment(body, end) { Event::Write } else { Event::Read })
}

struct Lint {
    functions: BTreeMap<String, Vec<Function>>,
    /// Events by function and pointer.
    known: RefCell<BTreeMap<(*const Function, String), Vec<Event>>>,
}

impl Lint {
    /// Returns the events of a pointer in a function, including calls; without a pointer, the barriers.
    fn events(&self, function: &Function, pointer: &str) -> Vec<Event> {
        let key = (std::ptr::from_ref(function), pointer.to_string());
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        // Structures have functions of one name that call each other: a recursive call adds nothing.
        self.known.borrow_mut().insert(key.clone(), Vec::new());
        let mut events = Vec::new();
        // The pointer and pointers derived from it: `float *at = out + ...`.
        let mut names = BTreeSet::from([pointer]);
        let body = &function.body;
        for (i, token) in body.iter().enumerate() {
            if let Some((callees, arguments)) = self.call(body, i) {
                let arguments = parts(arguments);
                let passed = arguments.iter().position(|a| (0..a.len()).any(|i| is_one_of(a, i, &names)));
                // Functions of several structures with the same name are distinguished by their number of
                // parameters.
                for callee in callees.iter().filter(|f| f.parameters.len() == arguments.len()) {
                    let parameter = passed.and_then(|at| callee.parameters.get(at));
                    let parameter = parameter.filter(|p| callee.pointers.contains(*p)).map_or("", |p| p);
                    events.extend(self.events(callee, parameter));
                }
            } else if token == "barrier" {
                events.push(Event::Barrier);
            } else if token == "memory_barrier" {
                events.push(Event::Fence);
            } else if is_one_of(body, i, &names) {
                match made_of_it(body, i) {
                    Some(name) => {
                        names.insert(name);
                    }
                    None => events.extend(access(body, i)),
                }
            }
        }
        events.dedup();
        self.known.borrow_mut().insert(key, events.clone());
        events
    }

    /// Returns the functions of the name at `i` and the arguments of their call, if it is a call.
    fn call<'a>(&self, body: &'a [String], i: usize) -> Option<(&Vec<Function>, &'a [String])> {
        let callees = self.functions.get(&body[i]).filter(|_| !body[i].ends_with("barrier"))?;
        // After the arguments of a template.
        let open = (i + 1..body.len().min(i + 24)).find(|&j| body[j] == "(")?;
        let called = open == i + 1 || body[i + 1] == "<" && body[open - 1] == ">";
        called.then(|| (callees, &body[open + 1..closing(body, open)]))
    }

    /// Returns kernels that read memory after a barrier which does not order their writes to it.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, functions) in &self.functions {
            for function in functions.iter().filter(|f| f.kernel) {
                for pointer in &function.pointers {
                    // State 0: nothing yet; 1: written; 2: written before a barrier.
                    let mut state = 0;
                    for event in self.events(function, pointer) {
                        state = match (event, state) {
                            (Event::Write, 0) => 1,
                            (Event::Barrier, 1) => 2,
                            (Event::Fence, _) => 0,
                            (Event::Read, 2) => {
                                wrong.push(format!("{name}: {pointer}"));
                                break;
                            }
                            (_, state) => state,
                        };
                    }
                }
            }
        }
        wrong
    }
}

fn lint(extra: &str) -> Lint {
    let all: Vec<&str> = hip_kernels::sources().iter().map(|(_, text)| *text).chain([extra]).collect();
    Lint { functions: functions(&all.join("\n")), known: RefCell::default() }
}

#[test]
fn no_kernel_depends_on_barriers_that_order_memory() {
    let lint = lint("");
    let kernels = lint.functions.values().flatten().filter(|f| f.kernel && !f.pointers.is_empty()).count();
    assert!(kernels > 20, "{kernels} kernels were found");
    assert_eq!(lint.wrong(), Vec::<String>::new());
}

/// The lint detects its targets: in a kernel, through a function, through a pointer derived from the operand.
#[test]
fn planted_kernels_are_found() {
    let planted = "
        DEVICE void put(float *to, u32 i, float x) { to[i] = x; }
        DEVICE float shared_sum(float x, float *scratch) { scratch[lane_id()] = x; barrier(); return scratch[0]; }
        KERNEL(64) plain(const float *x, float *d, P p) { d[thread_id()] = x[0]; barrier(); d[0] = d[63] + 1.0f; }
        KERNEL(64) called(float *d, P p) { put(d, thread_id(), 1.0f); barrier(); float y = d[63]; put(d, 0, y); }
        KERNEL(64) reduced(float *d, P p) {
            LDS float scratch[64];
            *(f32x4 *)(d + 4 * thread_id()) = f32x4(0.0f);
            float y = shared_sum(1.0f, scratch);
            const float *at = d + 8;
            if (at[1] == y) d[0] = y;
        }
        KERNEL(64) ordered(float *d, P p) { d[thread_id()] = 1.0f; memory_barrier(); d[0] = d[63]; }
        KERNEL(64) apart(const float *x, float *d, P p) { d[thread_id()] = x[0]; barrier(); d[0] = x[63]; }
        KERNEL(64) own(float *d, P p) { LDS float s[64]; s[thread_id()] = 1.0f; barrier(); d[0] = s[63]; }
    ";
    assert_eq!(lint(planted).wrong(), ["called: d", "plain: d", "reduced: d"]);
}
