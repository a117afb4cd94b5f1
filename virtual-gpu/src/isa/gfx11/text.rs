//! Texts of fields that are GFX11's own.

/// Returns the text of what `s_delay_alu` waits for: two earlier instructions, and how many instructions are between.
pub(in crate::isa) fn delay(field: u32) -> String {
    const WAITS: [&str; 12] = [
        "",
        "VALU_DEP_1",
        "VALU_DEP_2",
        "VALU_DEP_3",
        "VALU_DEP_4",
        "TRANS32_DEP_1",
        "TRANS32_DEP_2",
        "TRANS32_DEP_3",
        "FMA_ACCUM_CYCLE_1",
        "SALU_CYCLE_1",
        "SALU_CYCLE_2",
        "SALU_CYCLE_3",
    ];
    const SKIPS: [&str; 6] = ["", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
    let part = |name: &str, values: &[&str], n: u32| match values.get(n as usize) {
        _ if n == 0 => None,
        Some(value) => Some(format!("{name}({value})")),
        None => Some(format!("{name}(/* invalid {} value */)", name.trim_end_matches(['0', '1']))),
    };
    let parts = [
        part("instid0", &WAITS, field & 15),
        part("instskip", &SKIPS, field >> 4 & 7),
        part("instid1", &WAITS, field >> 7 & 15),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "0".into() } else { parts.join(" | ") }
}

/// Returns the text of `s_waitcnt_depctr`: counters that are not at their largest value, or all of them.
pub(in crate::isa) fn dependencies(field: u32) -> String {
    let counters = [
        ("hold_cnt", 7, 1),
        ("sa_sdst", 0, 1),
        ("va_vdst", 12, 15),
        ("va_sdst", 9, 7),
        ("va_ssrc", 8, 1),
        ("va_vcc", 1, 1),
        ("vm_vsrc", 2, 7),
    ];
    let known = counters.iter().fold(0, |known, &(_, at, most)| known | most << at);
    if field & !known != 0 {
        return format!("{field:#x}");
    }
    let all = counters.iter().all(|&(_, at, most)| field >> at & most == most);
    let text = |&(name, at, most): &(&str, u32, u32)| {
        let n = field >> at & most;
        (all || n != most).then(|| format!("depctr_{name}({n})"))
    };
    counters.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

/// Returns the name of a hardware register.
pub(in crate::isa) fn hardware_register(id: u32) -> Option<&'static str> {
    Some(match id {
        1 => "HW_REG_MODE",
        2 => "HW_REG_STATUS",
        3 => "HW_REG_TRAPSTS",
        5 => "HW_REG_GPR_ALLOC",
        6 => "HW_REG_LDS_ALLOC",
        7 => "HW_REG_IB_STS",
        15 => "HW_REG_SH_MEM_BASES",
        18 => "HW_REG_PERF_SNAPSHOT_PC_LO",
        19 => "HW_REG_PERF_SNAPSHOT_PC_HI",
        20 => "HW_REG_FLAT_SCR_LO",
        21 => "HW_REG_FLAT_SCR_HI",
        23 => "HW_REG_HW_ID1",
        24 => "HW_REG_HW_ID2",
        27 => "HW_REG_PERF_SNAPSHOT_DATA",
        29 => "HW_REG_SHADER_CYCLES",
        _ => return None,
    })
}

/// Returns the text of a message.
pub(in crate::isa) fn message(field: u32) -> String {
    // The upper half means nothing.
    let name = match field & 0xff {
        1 => "MSG_INTERRUPT",
        2 => "MSG_HS_TESSFACTOR",
        3 => "MSG_DEALLOC_VGPRS",
        5 => "MSG_STALL_WAVE_GEN",
        6 => "MSG_HALT_WAVES",
        9 => "MSG_GS_ALLOC_REQ",
        0x80 => "MSG_RTN_GET_DOORBELL",
        0x81 => "MSG_RTN_GET_DDID",
        0x82 => "MSG_RTN_GET_TMA",
        0x83 => "MSG_RTN_GET_REALTIME",
        0x84 => "MSG_RTN_SAVE_WAVE",
        0x85 => "MSG_RTN_GET_TBA",
        0x86 => "MSG_RTN_GET_TBA_TO_PC",
        _ if field < 0x100 => return format!("sendmsg({field}, 0, 0)"),
        _ => return field.to_string(),
    };
    format!("sendmsg({name})")
}
