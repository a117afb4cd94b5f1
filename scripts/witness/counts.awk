# Counts of a run under virtual-kfd, or of one run without another: instructions by class, dispatches, bytes.
#
#   awk -f counts.awk -v runs=1 [-v list=N] MINUS PLUS
#
# MINUS and PLUS are files that VIRTUAL_KFD_COUNTS named; MINUS may be /dev/null. The difference is divided by `runs`.
# Prints one line of totals, then, with `list`, the N kernels with most instructions.
#
# Columns: dispatches; instructions, all; vector ALU; scalar ALU and branches; vector memory; scalar memory; LDS; waits;
# bytes that lanes and scalar loads read, and that lanes wrote, in global memory. Instructions in thousands of wavefronts'
# instructions, bytes in MB.

BEGIN { FS = "\t"; if (!runs) runs = 1 }

FILENAME != current { current = FILENAME; sign = (FILENAME == ARGV[1]) ? -1 : 1 }

# Runtimes launch copies of their own by an address in place of a name.
$1 == "kernel" {
    name = ($2 ~ /^0x/) ? "(without a name)" : $2
    launches[name] += sign * $3
    for (i = 4; i <= NF; i++) {
        split($i, counter, " ")
        count[name, counter[1]] += sign * counter[2]
    }
}

function row(name) {
    value[1] = launches[name]
    value[2] = count[name, "instructions"] / 1e3
    value[3] = count[name, "valu"] / 1e3
    value[4] = (count[name, "salu"] + count[name, "branch"]) / 1e3
    value[5] = (count[name, "vmem_load"] + count[name, "vmem_store"]) / 1e3
    value[6] = count[name, "smem"] / 1e3
    value[7] = count[name, "lds"] / 1e3
    value[8] = count[name, "wait"] / 1e3
    value[9] = (count[name, "global_read"] + count[name, "scalar_read"]) / 1e6
    value[10] = count[name, "global_written"] / 1e6
}

function line(name, i, text) {
    text = sprintf("%10.1f", value[1] / runs)
    for (i = 2; i <= 10; i++) text = text sprintf("%10.1f", value[i] / runs)
    return text "  " name
}

END {
    for (name in launches) {
        row(name)
        for (i = 1; i <= 10; i++) total[i] += value[i]
        text[name] = line(name)
        key[name] = value[2]
    }
    for (i = 1; i <= 10; i++) value[i] = total[i]
    print "dispatches instr(k)   VALU(k)   SALU(k)   VMEM(k)   SMEM(k)    LDS(k)  waits(k)  read(MB) wrote(MB)"
    print line("all")
    for (n = 0; n < list; n++) {
        best = ""
        for (name in key) if (key[name] && (best == "" || key[name] > key[best])) best = name
        if (best == "") break
        print substr(text[best], 1, 180)
        delete key[best]
    }
}
