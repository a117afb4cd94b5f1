//! One kernel per instruction: lanes load operands, execute it, and store the resulting registers.

use crate::support::{Arguments, AsmKernel, Random, Session, asm, compile};
use crate::vectors::expected::matches;
pub(crate) use crate::vectors::expected::{Dst, Out};
use crate::vectors::operands::{Kind, Operands};
use bytemuck::{Pod, Zeroable};
use virtual_gpu::{Checks, Options, Target};

/// Loads a lane's operands to v[16:31] and its wavefront's to s[16:31]; stores the registers afterwards. With
/// scratch, the resource is saved in s[80:83] and the wavefront's offset in s84; gfx942 has no registers for it.
const MACROS: &str = "
.macro with_scratch
.if .amdgcn.gfx_generation_minor == 0
  s_add_u32 flat_scratch_lo, s6, s9
  s_addc_u32 flat_scratch_hi, s7, 0
  s_mov_b64 s[80:81], s[0:1]
  s_mov_b64 s[82:83], s[2:3]
  s_mov_b32 s84, s9
  s_mov_b64 s[0:1], s[4:5]
  s_mov_b32 s2, s8
.endif
.endm
.macro begin
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  s_lshl_b32 s10, s2, 12
  s_lshl_b32 s11, s2, 6
  s_waitcnt lgkmcnt(0)
  s_load_dwordx16 s[16:31], s[8:9], s11
  v_lshlrev_b32_e32 v1, 6, v0
  v_add_u32_e32 v1, s10, v1
  global_load_dwordx4 v[16:19], v1, s[4:5]
  global_load_dwordx4 v[20:23], v1, s[4:5] offset:16
  global_load_dwordx4 v[24:27], v1, s[4:5] offset:32
  global_load_dwordx4 v[28:31], v1, s[4:5] offset:48
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_mov_b32 m0, s27
  s_mov_b64 vcc, s[16:17]
  s_cmp_lg_u32 s26, 0
  s_mov_b64 exec, s[18:19]
.endm
.macro finish
  s_cselect_b32 s40, 1, 0
  s_mov_b64 s[42:43], vcc
  s_mov_b64 s[44:45], exec
  s_mov_b64 exec, -1
  v_mov_b32_e32 v32, s42
  v_mov_b32_e32 v33, s43
  v_mov_b32_e32 v34, s44
  v_mov_b32_e32 v35, s45
  v_mov_b32_e32 v36, s24
  v_mov_b32_e32 v37, s25
  v_mov_b32_e32 v38, s40
  v_mov_b32_e32 v39, m0
  s_waitcnt 0
  global_store_dwordx4 v1, v[24:27], s[6:7]
  global_store_dwordx4 v1, v[32:35], s[6:7] offset:16
  global_store_dwordx4 v1, v[36:39], s[6:7] offset:32
  global_store_dwordx4 v1, v[16:19], s[6:7] offset:48
.endm
";

/// The same for wavefronts of 32 lanes.
pub(crate) const MACROS_32: &str = "
.macro begin
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b64 s[8:9], s[0:1], 0x10
  s_lshl_b32 s10, s2, 11
  s_lshl_b32 s11, s2, 6
  s_waitcnt lgkmcnt(0)
  s_load_b512 s[16:31], s[8:9], s11
  v_lshlrev_b32_e32 v1, 6, v0
  v_add_nc_u32_e32 v1, s10, v1
  global_load_b128 v[16:19], v1, s[4:5]
  global_load_b128 v[20:23], v1, s[4:5] offset:16
  global_load_b128 v[24:27], v1, s[4:5] offset:32
  global_load_b128 v[28:31], v1, s[4:5] offset:48
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_mov_b32 m0, s27
  s_mov_b64 vcc, s[16:17]
  s_cmp_lg_u32 s26, 0
  s_mov_b64 exec, s[18:19]
.endm
.macro finish
  s_cselect_b32 s40, 1, 0
  s_mov_b64 s[42:43], vcc
  s_mov_b64 s[44:45], exec
  s_mov_b64 exec, -1
  v_mov_b32_e32 v32, s42
  v_mov_b32_e32 v33, s43
  v_mov_b32_e32 v34, s44
  v_mov_b32_e32 v35, s45
  v_mov_b32_e32 v36, s24
  v_mov_b32_e32 v37, s25
  v_mov_b32_e32 v38, s40
  v_mov_b32_e32 v39, m0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_waitcnt_vscnt null, 0x0
  global_store_b128 v1, v[24:27], s[6:7]
  global_store_b128 v1, v[32:35], s[6:7] offset:16
  global_store_b128 v1, v[36:39], s[6:7] offset:32
  global_store_b128 v1, v[16:19], s[6:7] offset:48
.endm
";

/// Placeholders in a case's text and their registers.
const REGISTERS: &[(&str, &str)] = &[
    ("{a}", "v16"),
    ("{A}", "v[16:17]"),
    ("{b}", "v18"),
    ("{B}", "v[18:19]"),
    ("{c}", "v20"),
    ("{C}", "v[20:21]"),
    ("{CC}", "v[20:23]"),
    ("{d}", "v24"),
    ("{D}", "v[24:25]"),
    ("{DD}", "v[24:27]"),
    ("{sa}", "s20"),
    ("{SA}", "s[20:21]"),
    ("{sb}", "s22"),
    ("{SB}", "s[22:23]"),
    ("{sd}", "s24"),
    ("{SD}", "s[24:25]"),
    ("{sc}", "s28"),
    ("{SC}", "s[28:29]"),
];

/// Inputs of a lane.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct LaneIn {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: [u64; 2],
    pub(crate) old: [u32; 4],
    pub(crate) spare: [u32; 4],
}

/// Inputs of a wavefront.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct WaveIn {
    pub(crate) vcc: u64,
    pub(crate) exec: u64,
    pub(crate) sa: u64,
    pub(crate) sb: u64,
    pub(crate) sd: u64,
    pub(crate) scc: u32,
    pub(crate) m0: u32,
    pub(crate) sc: u64,
    pub(crate) spare: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct LaneOut {
    dst: [u32; 4],
    vcc: u64,
    exec: u64,
    sd: u64,
    scc: u32,
    m0: u32,
    a: u64,
    b: u64,
}

/// Inputs of an expectation: the lane's operands, its index, the wavefront's scalars and the other lanes.
pub(crate) struct In<'a> {
    pub(crate) lane: usize,
    pub(crate) wave: &'a WaveIn,
    pub(crate) lanes: &'a [LaneIn],
}

impl In<'_> {
    fn own(&self) -> &LaneIn {
        &self.lanes[self.lane]
    }
    pub(crate) fn a(&self) -> u64 {
        self.own().a
    }
    pub(crate) fn b(&self) -> u64 {
        self.own().b
    }
    pub(crate) fn c(&self) -> u64 {
        self.own().c[0]
    }
    pub(crate) fn a32(&self) -> u32 {
        self.a() as u32
    }
    pub(crate) fn b32(&self) -> u32 {
        self.b() as u32
    }
    pub(crate) fn c32(&self) -> u32 {
        self.c() as u32
    }
    pub(crate) fn c128(&self) -> u128 {
        bytemuck::cast(self.own().c)
    }
    pub(crate) fn quad(&self) -> [u32; 4] {
        bytemuck::cast(self.own().c)
    }
    pub(crate) fn old(&self) -> u32 {
        self.own().old[0]
    }
    pub(crate) fn old64(&self) -> u64 {
        u64::from(self.own().old[0]) | u64::from(self.own().old[1]) << 32
    }
    pub(crate) fn vcc(&self) -> bool {
        self.wave.vcc >> self.lane & 1 == 1
    }
    pub(crate) fn active(&self, lane: usize) -> bool {
        self.wave.exec >> lane & 1 == 1
    }
}

type Formula = Box<dyn Fn(&In<'_>) -> Out + Send + Sync>;

/// An instruction and its expected effect.
pub(crate) struct Case {
    pub(crate) text: String,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) formula: Formula,
    pub(crate) kernel: AsmKernel,
    /// Instructions before and after, for example to set up LDS.
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) only: Option<Target>,
    /// Adjusts operands of lanes and wavefront beyond what the kinds express.
    pub(crate) adjust: Option<fn(&mut WaveIn, &mut [LaneIn], &mut Random)>,
    /// Number of wavefronts, if the operands do not determine it.
    pub(crate) waves: Option<usize>,
    /// An emulator may reject the instruction with a fault that contains this word.
    pub(crate) refusable: Option<&'static str>,
}

impl Case {
    pub(crate) fn new(
        text: impl Into<String>,
        kinds: &[Kind],
        formula: impl Fn(&In<'_>) -> Out + Send + Sync + 'static,
    ) -> Self {
        Self {
            text: text.into(),
            kinds: kinds.to_vec(),
            formula: Box::new(formula),
            kernel: AsmKernel { arguments: 24, ..AsmKernel::new("", "") },
            before: String::new(),
            after: String::new(),
            only: None,
            adjust: None,
            waves: None,
            refusable: None,
        }
    }

    pub(crate) fn only(mut self, target: Target) -> Self {
        self.only = Some(target);
        self
    }

    pub(crate) fn waves(mut self, count: usize) -> Self {
        self.waves = Some(count);
        self
    }

    pub(crate) fn refusable(mut self, word: &'static str) -> Self {
        self.refusable = Some(word);
        self
    }

    pub(crate) fn adjusted(mut self, adjust: fn(&mut WaveIn, &mut [LaneIn], &mut Random)) -> Self {
        self.adjust = Some(adjust);
        self
    }

    pub(crate) fn modes(mut self, change: impl Fn(&mut AsmKernel)) -> Self {
        change(&mut self.kernel);
        self
    }

    pub(crate) fn around(mut self, before: &str, after: &str) -> Self {
        (self.before, self.after) = (before.to_owned(), after.to_owned());
        self
    }

    /// Returns the mnemonic under test: the first one of the text.
    pub(crate) fn mnemonic(&self) -> String {
        self.mnemonics().next().unwrap_or_default()
    }

    /// Returns the first word of each line: mnemonics with encoding suffixes.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let lines = self.text.lines().filter(|line| !line.ends_with(':'));
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned)
    }

    /// Returns the mnemonics without encoding suffixes.
    pub(crate) fn mnemonics(&self) -> impl Iterator<Item = String> {
        self.words().map(|word| {
            let bare = ["_e32", "_e64", "_sdwa", "_dpp"].iter().find_map(|suffix| word.strip_suffix(suffix));
            bare.unwrap_or(&word).to_owned()
        })
    }

    pub(crate) fn body(&self) -> String {
        let scratch = if self.kernel.scratch > 0 { "with_scratch\n" } else { "" };
        let mut text = format!("{scratch}begin\n{}\n{}\n{}\nfinish", self.before, self.text, self.after);
        for (name, register) in REGISTERS {
            text = text.replace(name, register);
        }
        text
    }
}

/// Returns the cases of a target, and a code object with a kernel `k0`, `k1` and so on for each.
pub(crate) fn object(cases: &[Case], target: Target) -> (Vec<&Case>, Vec<u8>) {
    let chosen: Vec<&Case> = cases.iter().filter(|c| c.only.is_none_or(|only| only == target)).collect();
    let kernel = |(i, case): (usize, &&Case)| AsmKernel {
        name: format!("k{i}"),
        body: case.body(),
        ..case.kernel.clone()
    };
    let kernels: Vec<AsmKernel> = chosen.iter().enumerate().map(kernel).collect();
    let text =
        if kernels.is_empty() { Vec::new() } else { compile::assemble(target, &asm::file(MACROS, &kernels)) };
    (chosen, text)
}

/// Runs cases on their targets of GFX9; all kernels of a target are in one object.
pub(crate) fn check(cases: Vec<Case>) {
    check_on(&crate::support::TARGETS, cases);
}

/// Runs cases on some targets.
pub(crate) fn check_on(targets: &[Target], cases: Vec<Case>) {
    let mut complaints = Vec::new();
    for &target in targets {
        let (chosen, object) = object(&cases, target);
        if chosen.is_empty() {
            continue;
        }
        // Vectors also test the hardware's behaviour at the end of a buffer.
        let options = Options::default();
        let options = Options { checks: Checks { ranges: false, ..options.checks }, ..options };
        complaints.extend(run_on(target, &object, options, &chosen));
    }
    assert!(
        complaints.is_empty(),
        "{} of {} cases:\n{}",
        complaints.len(),
        cases.len(),
        complaints.join("\n")
    );
}

/// Runs cases on a target; returns what is wrong.
pub(crate) fn run_on(target: Target, object: &[u8], options: Options, cases: &[&Case]) -> Vec<String> {
    let session = Session::with_options(target, "vectors", object, options);
    let mut complaints = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let refused = |why: &str| {
            case.refusable.is_some_and(|word| why.contains(word) && why.contains("not implemented"))
        };
        let result = run(&session, &format!("k{i}"), case);
        if let Some(complaint) = result.err().filter(|why| !refused(why)) {
            complaints.push(format!("{}: {}: {complaint}", target.name(), case.text));
        }
    }
    complaints
}

fn run(session: &Session, kernel: &str, case: &Case) -> Result<(), String> {
    let count = crate::support::lanes(session.target);
    let seed = case.text.bytes().fold(7, |hash: u64, b| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(b));
    let mut random = Random::new(seed);
    let (mut waves, mut lanes) = Operands::new(&case.kinds, case.waves).fill(&mut random);
    if let Some(adjust) = case.adjust {
        for (wave, lanes) in waves.iter_mut().zip(lanes.chunks_mut(64)) {
            adjust(wave, lanes, &mut random);
        }
    }
    // The first lanes of each wavefront.
    let lanes: Vec<LaneIn> = lanes.chunks(64).flat_map(|lanes| &lanes[..count]).copied().collect();
    let (from, scalars) = (session.upload(&lanes), session.upload(&waves));
    let to = session.allocate(lanes.len() * size_of::<LaneOut>());
    let arguments = Arguments::new().add(from).add(to).add(scalars);
    let ran = session.attempt(kernel, [waves.len() as u32, 1, 1], [count as u32, 1, 1], 0, &arguments);
    let result = ran.map_err(|fault| fault.to_string()).and_then(|_| {
        let output: Vec<LaneOut> = session.download(to, lanes.len());
        let groups = waves.iter().zip(lanes.chunks(count)).zip(output.chunks(count));
        groups
            .map(|((wave, lanes), out)| compare(case, wave, lanes, out))
            .find(Result::is_err)
            .unwrap_or(Ok(()))
    });
    for address in [from, scalars, to] {
        session.gpu.free(address).map_err(|fault| fault.to_string())?;
    }
    result
}

fn compare(case: &Case, wave: &WaveIn, lanes: &[LaneIn], output: &[LaneOut]) -> Result<(), String> {
    let (mut vcc, mut mask, mut exec) = (None, None, None);
    for (lane, got) in output.iter().enumerate() {
        let input = In { lane, wave, lanes };
        let own = &lanes[lane];
        let active = input.active(lane);
        let want = (case.formula)(&input);
        for (mask, bit) in [(&mut vcc, want.vcc), (&mut mask, want.mask), (&mut exec, want.exec_bit)] {
            if let Some(bit) = bit {
                *mask.get_or_insert(0u64) |= u64::from(bit && active) << lane;
            }
        }
        let dst = if active || want.always { want.dst.clone() } else { Dst::Unchanged };
        if !matches(&dst, got.dst, own.old) {
            return Err(format!(
                "lane {lane}{}: a {:#x}, b {:#x}, c {:x?}, old {:x?}, vcc {:#x}, s {:#x} {:#x}: got {:x?}, not {:x?}",
                if active { "" } else { " (off)" },
                own.a,
                own.b,
                own.c,
                own.old,
                wave.vcc,
                wave.sa,
                wave.sb,
                got.dst,
                dst
            ));
        }
        scalars(&want, wave, got).map_err(|why| {
            let WaveIn { sa, sb, sd, scc, exec, vcc, .. } = wave;
            format!("s {sa:#x}, {sb:#x}, old {sd:#x}, scc {scc}, exec {exec:#x}, vcc {vcc:#x}: {why}")
        })?;
        let a = if active { want.a } else { None };
        if (got.a as u32, got.b) != (a.unwrap_or(own.a as u32), own.b) {
            return Err(format!("lane {lane}: operands are now {:#x}, {:#x}", got.a, got.b));
        }
    }
    let got = &output[0];
    // The carry bits of inactive lanes are not compared.
    let all = u64::MAX >> (64 - lanes.len());
    let kept = all & if case.mnemonic().starts_with("v_cmp") { u64::MAX } else { wave.exec };
    for (what, got, want) in [("vcc", got.vcc, vcc), ("s[24:25]", got.sd, mask), ("exec", got.exec, exec)] {
        if let Some(want) = want.filter(|want| got & kept != want & kept) {
            let lane = ((got ^ want) & kept).trailing_zeros() as usize;
            let LaneIn { a, b, c, .. } = lanes[lane];
            return Err(format!(
                "{what} is {got:#x}, not {want:#x} (exec {:#x}); lane {lane}: {a:#x}, {b:#x}, {c:x?}",
                wave.exec
            ));
        }
    }
    Ok(())
}

/// Compares scalar results.
fn scalars(want: &Out, wave: &WaveIn, got: &LaneOut) -> Result<(), String> {
    let scc = u32::from(want.scc.unwrap_or(wave.scc != 0));
    let sd = match (want.sd, want.sd32) {
        (Some(wide), _) => wide,
        (None, Some(low)) => wave.sd & !0xffff_ffff | u64::from(low),
        (None, None) => wave.sd,
    };
    let exec = want.exec.unwrap_or(wave.exec);
    if got.scc != scc {
        return Err(format!("scc is {}, not {scc}", got.scc));
    }
    if want.mask.is_none() && got.sd != sd {
        return Err(format!("s[24:25] is {:#x}, not {sd:#x}", got.sd));
    }
    let sparing = want.vcc.is_some();
    if !sparing && got.vcc != want.whole_vcc.unwrap_or(wave.vcc) {
        return Err(format!("vcc is {:#x}, not {:#x}", got.vcc, want.whole_vcc.unwrap_or(wave.vcc)));
    }
    if want.exec_bit.is_none() && got.exec != exec {
        return Err(format!("exec is {:#x}, not {exec:#x}", got.exec));
    }
    if got.m0 != wave.m0 {
        return Err(format!("m0 is {:#x}, not {:#x}", got.m0, wave.m0));
    }
    Ok(())
}
