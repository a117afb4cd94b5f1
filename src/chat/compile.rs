//! Compilation of a template to instructions with bounded memory.
//!
//! The engine's compiler evaluates constant expressions, so these are checked before it runs. Its
//! instructions are used with calls of the budget's filters inserted. No template can name these filters.

use super::budget;
use super::error::ChatError;
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of bytes of a template: the largest in use have some ten thousands.
const MAX_SOURCE: usize = 256 << 10;

/// Maximum number of nested operators: for each of them, the engine evaluates the parts of a constant chain
/// again, by recursion.
const MAX_DEPTH: usize = 500;

/// Invalid filter index, so that the filter is looked up by its name.
const UNKNOWN: u8 = !0;

/// Filters that check operands before the engine uses them; see [`budget::operator`].
const OPERATORS: [&str; 10] = ["+", "*", "~", "[:]", "in", "=", "changed", "==", "<in", "[.]"];

/// Filter that charges a new list or dictionary.
const NEW: &str = "[]";

/// Filter that makes a list of an iterator that would be evaluated again each time.
const LISTED: &str = "[...]";

/// Filter that joins several lists into one.
const JOINED: &str = "[*]";

/// Template that can be run.
pub(super) struct Program<'s> {
    pub(super) main: Instructions<'s>,
    pub(super) blocks: BTreeMap<&'s str, Instructions<'s>>,
}

/// Compiles a template.
pub(super) fn compile(source: &str) -> Result<Program<'_>, ChatError> {
    let syntax = |what: String| ChatError::Syntax { line: 0, what };
    if source.len() > MAX_SOURCE {
        return Err(syntax(format!("a template of {} bytes; at most {MAX_SOURCE} are read", source.len())));
    }
    let config = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let tree =
        config.and_then(|config| parse(source, "chat", config)).map_err(|e| ChatError::from_engine(&e))?;
    statement(&tree)?;
    let mut generator = CodeGenerator::new("chat", source);
    generator.compile_stmt(&tree);
    let (main, blocks) = generator.finish();
    let blocks = blocks.iter().map(|(name, block)| (*name, bounded(block, source))).collect();
    Ok(Program { main: bounded(&main, source), blocks })
}

/// Charges the constants of a statement and of everything in it.
fn statement(tree: &Stmt<'_>) -> Result<(), ChatError> {
    let all = |body: &[Stmt<'_>]| body.iter().try_for_each(statement);
    let each = |list: &[Expr<'_>]| list.iter().try_for_each(|e| expression(e, 0));
    let some = |e: &Option<Expr<'_>>| e.iter().try_for_each(|e| expression(e, 0));
    let one = |e: &Expr<'_>| expression(e, 0);
    match tree {
        Stmt::Template(t) => all(&t.children),
        Stmt::EmitExpr(e) => one(&e.expr),
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
        Stmt::ForLoop(l) => {
            one(&l.iter)?;
            some(&l.filter_expr)?;
            all(&l.body)?;
            all(&l.else_body)
        }
        Stmt::IfCond(c) => {
            one(&c.expr)?;
            all(&c.true_body)?;
            all(&c.false_body)
        }
        Stmt::WithBlock(w) => {
            w.assignments.iter().try_for_each(|(_, value)| one(value))?;
            all(&w.body)
        }
        Stmt::Set(s) => {
            one(&s.target)?;
            one(&s.expr)
        }
        Stmt::SetBlock(s) => {
            some(&s.filter)?;
            all(&s.body)
        }
        Stmt::AutoEscape(a) => {
            one(&a.enabled)?;
            all(&a.body)
        }
        Stmt::FilterBlock(f) => {
            one(&f.filter)?;
            all(&f.body)
        }
        Stmt::Macro(m) => {
            each(&m.defaults)?;
            all(&m.body)
        }
        Stmt::CallBlock(c) => {
            one(&c.call.expr)?;
            arguments(&c.call.args, 0)?;
            each(&c.macro_decl.defaults)?;
            all(&c.macro_decl.body)
        }
        Stmt::Do(d) => {
            one(&d.call.expr)?;
            arguments(&d.call.args, 0)
        }
        Stmt::Block(b) => all(&b.body),
        Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
            Err(ChatError::Syntax { line: 0, what: "a template cannot use other templates".to_string() })
        }
    }
}

/// Charges the constants of an expression at nesting level `depth`.
fn expression(e: &Expr<'_>, depth: usize) -> Result<(), ChatError> {
    if depth > MAX_DEPTH {
        let what = format!("more than {MAX_DEPTH} operators in one expression");
        return Err(ChatError::Syntax { line: e.span().start_line.into(), what });
    }
    let one = |e: &Expr<'_>| expression(e, depth + 1);
    let all = |list: &[Expr<'_>]| list.iter().try_for_each(one);
    let some = |e: &Option<Expr<'_>>| e.iter().try_for_each(one);
    match e {
        Expr::Var(_) | Expr::Const(_) => Ok(()),
        Expr::Slice(s) => {
            one(&s.expr)?;
            [&s.start, &s.stop, &s.step].into_iter().try_for_each(some)
        }
        Expr::UnaryOp(u) => one(&u.expr),
        Expr::BinOp(b) => {
            one(&b.left)?;
            one(&b.right)?;
            let (Some(left), Some(right)) = (b.left.as_const(), b.right.as_const()) else { return Ok(()) };
            constant(b.op, &[left, right]).map_err(|e| ChatError::at(&e, b.span().start_line.into()))
        }
        Expr::Compare(c) => {
            one(&c.expr)?;
            c.ops.iter().try_for_each(|op| one(&op.expr))
        }
        Expr::IfExpr(i) => {
            one(&i.test_expr)?;
            one(&i.true_expr)?;
            some(&i.false_expr)
        }
        Expr::Filter(f) => {
            some(&f.expr)?;
            arguments(&f.args, depth)
        }
        Expr::Test(t) => {
            one(&t.expr)?;
            arguments(&t.args, depth)
        }
        Expr::GetAttr(g) => one(&g.expr),
        Expr::GetItem(g) => {
            one(&g.expr)?;
            one(&g.subscript_expr)
        }
        Expr::Call(c) => {
            one(&c.expr)?;
            arguments(&c.args, depth)
        }
        Expr::List(l) => all(&l.items),
        Expr::Tuple(t) => all(&t.items),
        Expr::Map(m) => {
            all(&m.keys)?;
            all(&m.values)
        }
    }
}

fn arguments(list: &[CallArg<'_>], depth: usize) -> Result<(), ChatError> {
    list.iter().try_for_each(|argument| match argument {
        CallArg::Pos(e) | CallArg::Kwarg(_, e) | CallArg::PosSplat(e) | CallArg::KwargSplat(e) => {
            expression(e, depth + 1)
        }
    })
}

fn constant(op: BinOpKind, operands: &[Value; 2]) -> Result<(), Error> {
    let name = match op {
        BinOpKind::Add => "+",
        BinOpKind::Mul => "*",
        BinOpKind::Concat => "~",
        BinOpKind::In => "in",
        _ => "==",
    };
    budget::operator(name, operands)
}

/// Adds the filters that [`bounded`] instructions call. A template cannot write their names after a `|`.
pub(super) fn add_filters(env: &mut Environment<'_>) {
    for name in OPERATORS {
        env.add_filter(name, move |operands: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let operands = operands.into_values();
            budget::operator(name, &operands)?;
            // `UnpackList` puts the first item of a list on top.
            Ok(operands.into_iter().rev().collect())
        });
    }
    env.add_filter(NEW, budget::made);
    env.add_filter(LISTED, budget::listed);
    env.add_filter(JOINED, |lists: Rest<Value>| -> Result<Value, Error> {
        budget::charge(budget::ITEM.saturating_mul(budget::sum(lists.iter().map(budget::items))))?;
        let mut all = Vec::new();
        for list in lists.iter() {
            all.extend(list.try_iter()?);
        }
        Ok(Value::from(all))
    });
}

/// Returns the same instructions with calls of the budget's filters.
fn bounded<'s>(from: &Instructions<'s>, source: &'s str) -> Instructions<'s> {
    let all = (0..).map_while(|at| from.get(at));
    let targets: BTreeSet<u32> = all.filter_map(|i| target(&mut i.clone()).copied()).collect();
    // A jump comes from elsewhere.
    let before = |at: u32| at.checked_sub(1).filter(|_| !targets.contains(&at)).and_then(|at| from.get(at));
    let groups: Vec<_> = (0..).map_while(|at| from.get(at).map(|i| charging(i, before(at)))).collect();
    let mut begins = vec![0];
    for group in &groups {
        begins.push(begins[begins.len() - 1] + group.len() as u32);
    }
    let mut to = Instructions::new(from.name(), source);
    for (group, at) in groups.into_iter().zip(0..) {
        for mut instruction in group {
            if let Some(target) = target(&mut instruction) {
                *target = begins[*target as usize];
            }
            match (from.get_span(at), from.get_line(at)) {
                (Some(span), _) => to.add_with_span(instruction, span),
                (None, Some(line)) => to.add_with_line(instruction, line as u16),
                (None, None) => to.add(instruction),
            };
        }
    }
    to
}

/// Returns the index of the instruction that an instruction may continue at.
fn target<'a>(instruction: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    match instruction {
        Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::Iterate(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// True if an instruction gives a key that is found at once in any value. The instruction that uses it stays next
/// to it then, from which the engine describes undefined values (`messages[9]`).
fn gives_short_key(instruction: Option<&Instruction<'_>>) -> bool {
    const SHORT: usize = 64;
    let Some(Instruction::LoadConst(key)) = instruction else { return false };
    match key.as_str() {
        Some(name) => name.len() <= SHORT,
        None => key.as_usize().is_some_and(|index| index <= SHORT),
    }
}

/// Returns the replacement of an instruction: the instruction itself, and the filters that charge for it. `before`
/// is the instruction before it.
fn charging<'s>(instruction: &Instruction<'s>, before: Option<&Instruction<'s>>) -> Vec<Instruction<'s>> {
    use Instruction as I;
    let same = || instruction.clone();
    let filter = |name, operands: u16| I::ApplyFilter(name, Some(operands), UNKNOWN);
    let operator = |name, operands: u16| vec![filter(name, operands), I::UnpackList(operands.into()), same()];
    match instruction {
        // Emitted values pass the formatter, which charges; raw text does not.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::Add => operator("+", 2),
        I::StringConcat => operator("~", 2),
        I::Mul => [operator("*", 2), vec![filter(LISTED, 1)]].concat(),
        I::Slice => [operator("[:]", 4), vec![filter(LISTED, 1)]].concat(),
        I::In => operator("in", 2),
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte => operator("==", 2),
        I::CompareAndPreserve(_) => operator("<in", 2),
        I::GetItem if !gives_short_key(before) => operator("[.]", 2),
        I::SetAttr(_) => operator("=", 2),
        I::CallMethod("changed", Some(operands)) => operator("changed", *operands),
        I::BuildMap(_) | I::BuildList(_) | I::BuildTuple(_) => vec![same(), filter(NEW, 1)],
        I::UnpackLists(lists) => vec![filter(JOINED, *lists as u16), I::UnpackLists(1)],
        // A macro has a list of its parameters, and the variables that it captures are retained to the end.
        I::BuildMacro(..) => vec![filter(NEW, 1), same()],
        I::Enclose(_) => {
            vec![I::LoadConst(Value::from(Vec::<Value>::new())), filter(NEW, 1), I::DiscardTop, same()]
        }
        _ => vec![same()],
    }
}
