//! Contents of PTX: its target and, for each kernel, arguments, shared memory, threads of a block.
//!
//! PTX is text that the driver compiles when it is loaded. Like a code object it is read first, so that
//! launches can be checked against the declared arguments, and the text of one kernel can be compiled without
//! the others. Source: NVIDIA's "Parallel Thread Execution ISA", chapters "Syntax", "State Spaces, Types, and
//! Variables" and "Directives".

use crate::arch::Target;
use crate::code::elf::{CodeObject, KernelInfo};
use std::ops::Range;

/// Returns true if an image is PTX: text whose first directive is `.version`.
pub(crate) fn is_ptx(image: &[u8]) -> bool {
    let head = image.get(..image.len().min(4096)).unwrap_or_default();
    Tokens { text: &String::from_utf8_lossy(head) }.next() == Some(".version")
}

/// Ranges in bytes of the kernels in a text, in order.
pub(crate) type Spans = Vec<Range<usize>>;

/// Returns a text with kernel number `kernel` only. All other declarations stay: target, variables, functions.
pub(crate) fn excerpt(image: &[u8], kernels: &[Range<usize>], kernel: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut from = 0;
    for (i, span) in kernels.iter().enumerate() {
        let end = if i == kernel { span.end } else { span.start };
        text.extend_from_slice(image.get(from..end).unwrap_or_default());
        from = span.end;
    }
    text.extend_from_slice(image.get(from..).unwrap_or_default());
    text
}

/// Reads PTX: its contents, and where each kernel stands. The error describes the defect.
pub(crate) fn read(image: &[u8]) -> Result<(CodeObject, Spans), String> {
    let text = std::str::from_utf8(image).map_err(|_| "is neither ELF nor text".to_string())?;
    let mut reader = Reader {
        tokens: Tokens { text },
        bytes: text.len(),
        target: None,
        shared: Vec::new(),
        kernels: Vec::new(),
        spans: Vec::new(),
    };
    // Offset of the word that says who may use what is declared next.
    let mut linkage = None;
    while let Some(token) = reader.tokens.next() {
        let at = reader.offset() - token.len();
        let begin = linkage.take().unwrap_or(at);
        match token {
            ".visible" | ".weak" => linkage = Some(at),
            token => reader.directive(token, begin)?,
        }
    }
    let target = reader.target.ok_or("has no .target")?;
    if reader.kernels.is_empty() {
        return Err("contains no kernel".into());
    }
    Ok((CodeObject { target: Some(target), abi_version: 0, kernels: reader.kernels }, reader.spans))
}

/// Iterator over words, numbers and punctuation, without comments and strings.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    text: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.text = self.text.trim_start();
            let after = |text: &'a str, end: &str| text.split_once(end).map_or("", |(_, rest)| rest);
            if self.text.starts_with("//") {
                self.text = after(self.text, "\n");
            } else if let Some(rest) = self.text.strip_prefix("/*") {
                self.text = after(rest, "*/");
            } else if let Some(rest) = self.text.strip_prefix('"') {
                self.text = after(rest, "\"");
            } else {
                break;
            }
        }
        let word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
        let first = self.text.chars().next()?;
        let end = if word(first) {
            self.text.find(|c| !word(c)).unwrap_or(self.text.len())
        } else {
            first.len_utf8()
        };
        let (token, rest) = self.text.split_at(end);
        self.text = rest;
        Some(token)
    }
}

/// Declared variable: name, bytes, alignment.
struct Variable<'a> {
    name: &'a str,
    bytes: u32,
    align: u32,
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    /// Size of the text.
    bytes: usize,
    target: Option<Target>,
    /// Shared memory declared outside kernels.
    shared: Vec<Variable<'a>>,
    kernels: Vec<KernelInfo>,
    spans: Spans,
}

impl<'a> Reader<'a> {
    /// Returns the offset of what was not read yet.
    fn offset(&self) -> usize {
        self.bytes - self.tokens.text.len()
    }

    /// Reads a declaration that begins at an offset; `token` is its first word after the linkage.
    fn directive(&mut self, token: &'a str, begin: usize) -> Result<(), String> {
        match token {
            ".target" => {
                let name = self.expect_word("a target")?;
                self.target = Some(Target::parse(name).ok_or_else(|| format!("is for '{name}'"))?);
            }
            ".address_size" => {
                let bits = self.expect_word("a size")?;
                if bits != "64" {
                    return Err(format!("has addresses of {bits} bits"));
                }
            }
            ".shared" => {
                let variable = self.variable()?;
                self.shared.push(variable);
            }
            ".entry" => {
                let kernel = self.kernel()?;
                self.kernels.push(kernel);
                self.spans.push(begin..self.offset());
            }
            // A function: its body contains nothing relevant.
            "{" => _ = self.body()?,
            _ => {}
        }
        Ok(())
    }

    fn expect_word(&mut self, what: &str) -> Result<&'a str, String> {
        self.tokens.next().ok_or_else(|| format!("ends where {what} was expected"))
    }

    fn kernel(&mut self) -> Result<KernelInfo, String> {
        let name = self.expect_word("the name of a kernel")?;
        let mut info = KernelInfo { name: name.into(), wave: 32, ..KernelInfo::default() };
        let mut end: u32 = 0;
        loop {
            match self.expect_word("the body of a kernel")? {
                ".param" => {
                    let parameter = self.variable()?;
                    let at = end
                        .checked_next_multiple_of(parameter.align)
                        .ok_or("has parameters of an impossible size")?;
                    info.arguments.push((at, parameter.bytes));
                    end = at.checked_add(parameter.bytes).ok_or("has parameters of an impossible size")?;
                }
                ".maxntid" | ".reqntid" => info.max_threads = self.product()?,
                "{" => break,
                ";" => return Err(format!("declares {name} and does not define it")),
                _ => {}
            }
        }
        let (mut lds, used) = self.body()?;
        for shared in &self.shared {
            if used.contains(&shared.name) {
                lds = lds.saturating_add(shared.bytes);
            }
        }
        info.lds_bytes = lds;
        Ok(info)
    }

    /// Reads a body to its closing brace. Returns the bytes of shared memory that it declares, and the words
    /// in it that name shared memory declared outside.
    fn body(&mut self) -> Result<(u32, Vec<&'a str>), String> {
        let (mut depth, mut lds, mut used) = (1u32, 0u32, Vec::new());
        while depth > 0 {
            match self.expect_word("a closing brace")? {
                "{" => depth += 1,
                "}" => depth -= 1,
                ".shared" => {
                    let variable = self.variable()?;
                    let at = lds.checked_next_multiple_of(variable.align).unwrap_or(u32::MAX);
                    lds = at.saturating_add(variable.bytes);
                }
                word if self.shared.iter().any(|s| s.name == word) => used.push(word),
                _ => {}
            }
        }
        Ok((lds, used))
    }

    /// Parses a declaration after its state space: `.align 4 .b8 name[60]`, `.u64 name`,
    /// `.u64 .ptr .global .align 1 name`.
    fn variable(&mut self) -> Result<Variable<'a>, String> {
        let (mut element, mut align, mut pointee) = (0, None, false);
        let name = loop {
            match self.expect_word("a variable")? {
                // The alignment after `.ptr` is that of the memory the parameter points at.
                ".ptr" => pointee = true,
                ".align" => {
                    let value = self.number()?;
                    align = if pointee { align } else { Some(value) };
                }
                word if word.starts_with('.') => element = size_of_type(word).unwrap_or(element),
                word => break word,
            }
        };
        if element == 0 {
            return Err(format!("declares {name} with an unknown type"));
        }
        let mut bytes = element;
        while self.tokens.clone().next() == Some("[") {
            self.tokens.next();
            // The launch determines the length of an array without an extent.
            let extent = if self.tokens.clone().next() == Some("]") { 0 } else { self.number()? };
            bytes = bytes.checked_mul(extent).ok_or("has an array of an impossible size")?;
            if self.expect_word("a bracket")? != "]" {
                return Err(format!("declares {name} with an invalid extent"));
            }
        }
        let align = align.unwrap_or(element);
        if !align.is_power_of_two() {
            return Err(format!("declares {name} with alignment {align}"));
        }
        Ok(Variable { name, bytes, align })
    }

    fn number(&mut self) -> Result<u32, String> {
        let text = self.expect_word("a number")?;
        text.parse().map_err(|_| format!("has '{text}' where an integer was expected"))
    }

    /// Returns the product of a comma-separated list of numbers.
    fn product(&mut self) -> Result<u32, String> {
        let mut product = self.number()?;
        while self.tokens.clone().next() == Some(",") {
            self.tokens.next();
            product = product.saturating_mul(self.number()?);
        }
        Ok(product)
    }
}

/// Returns the size of a fundamental type in bytes.
fn size_of_type(word: &str) -> Option<u32> {
    let digits = word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?;
    let bits: u32 = digits.parse().ok()?;
    [8, 16, 32, 64, 128].contains(&bits).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
//
// Generated by a compiler
//
.version 6.3
.target sm_70, debug
.address_size 64
.extern .shared .align 16 .b8 outside[];
.shared .align 4 .b8 table[256];
.visible .func (.param .b32 r) helper() { { ret; } }
	// .globl	norm
.visible .entry norm(
	.param .u64 .ptr .global .align 1 norm_param_0,
	.param .u64 norm_param_1,
	.param .align 4 .b8 norm_param_2[60], /* } .entry no( */
	.param .u8 norm_param_3
)
.maxntid 128, 2, 1 .minnctapersm 2                  // @norm
{
	.reg .pred 	%p<9>;
	.shared .align 4 .b8 scratch[30];
	.shared .f32 more[2][3];
	{ .param .b32 inner; }
	st.shared.f32 	[table+4], %f10;
}
.entry empty() { ret; }
"#;

    #[test]
    fn kernels_are_read() {
        assert!(
            is_ptx(SAMPLE.as_bytes()) && !is_ptx(b"\x7fELF") && !is_ptx(b"") && !is_ptx(b".target sm_70")
        );
        let (object, spans) = read(SAMPLE.as_bytes()).unwrap();
        let texts: Vec<&str> = spans.iter().map(|span| &SAMPLE[span.clone()]).collect();
        assert!(texts[0].starts_with(".visible .entry norm(") && texts[0].ends_with("%f10;\n}"), "{texts:?}");
        assert_eq!(texts[1], ".entry empty() { ret; }");
        assert_eq!(object.target.unwrap().processor, "sm_70");
        let [norm, empty] = &object.kernels[..] else { panic!("two kernels") };
        assert_eq!((norm.name.as_str(), norm.max_threads, norm.wave), ("norm", 256, 32));
        assert_eq!(norm.arguments, [(0, 8), (8, 8), (16, 60), (76, 1)]);
        assert_eq!(norm.lds_bytes, 256 + 32 + 24);
        assert_eq!((empty.arguments.len(), empty.lds_bytes, empty.max_threads), (0, 0, 0));
    }

    /// The text of one kernel has everything but the other kernels.
    #[test]
    fn a_kernel_stands_alone() {
        let (object, spans) = read(SAMPLE.as_bytes()).unwrap();
        for (i, kernel) in object.kernels.iter().enumerate() {
            let text = String::from_utf8(excerpt(SAMPLE.as_bytes(), &spans, i)).unwrap();
            let (alone, _) = read(text.as_bytes()).unwrap();
            assert_eq!((&alone.kernels[..], &alone.target), (std::slice::from_ref(kernel), &object.target));
            assert!(text.contains("outside[]") && text.contains("helper()"), "{text}");
        }
        let bytes: usize = (0..2).map(|i| excerpt(SAMPLE.as_bytes(), &spans, i).len()).sum();
        let kernels: usize = spans.iter().map(Range::len).sum();
        assert_eq!(bytes, 2 * SAMPLE.len() - kernels);
    }

    #[test]
    fn broken_text_is_an_error() {
        let change = |from: &str, to: &str| {
            assert!(SAMPLE.contains(from), "{from}");
            read(SAMPLE.replace(from, to).as_bytes()).unwrap_err()
        };
        for (from, to, part) in [
            (".target sm_70, debug", "", "no .target"),
            ("sm_70", "x86", "is for 'x86'"),
            ("size 64", "size 32", "32 bits"),
            (".u64 norm_param_1", ".texref norm_param_1", "unknown type"),
            ("[60]", "[60", "invalid extent"),
            ("[60]", "[many]", "'many'"),
            ("[60]", "[4294967295]", "impossible size"),
            (".align 4 .b8 norm", ".align 3 .b8 norm", "alignment 3"),
            ("norm_param_3\n)\n.maxntid 128", "norm_param_3\n);\n.maxntid 128", "does not define"),
            (".maxntid 128", ".maxntid x", "'x'"),
        ] {
            let why = change(from, to);
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(read(b"\xff\xfe").unwrap_err().contains("neither"));
        assert!(read(b".version 6.3\n.target sm_70").unwrap_err().contains("no kernel"));
        for end in 0..SAMPLE.len() {
            // A result or an error, never a panic.
            let _ = read(&SAMPLE.as_bytes()[..end]);
        }
    }
}
