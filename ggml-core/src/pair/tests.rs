use super::*;
use crate::exported::ExportedMemory;
use crate::null::{NullBackend, NullOptions};
use crate::sync::lock;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;

/// Driver whose device memory is files, so that another one can have it too.
struct FileDriver {
    inner: NullBackend,
    info: DeviceInfo,
    /// True if imported memory is a file of its own.
    elsewhere: bool,
    /// Imports that succeed before one is refused.
    imports: Mutex<usize>,
    log: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct FileMemory(File);

impl DeviceMemory for FileMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn file(buffer: &Buffer) -> &File {
    &buffer.downcast::<FileMemory>().expect("a buffer of this driver").0
}

impl FileDriver {
    fn new(name: &str, log: &Arc<Mutex<Vec<String>>>) -> FileDriver {
        let inner = NullBackend::open(NullOptions::default()).unwrap();
        let info = DeviceInfo { backend: name.into(), ..inner.device().clone() };
        FileDriver { inner, info, elsewhere: false, imports: Mutex::new(usize::MAX), log: log.clone() }
    }

    fn note(&self, event: &str) {
        lock(&self.log).push(format!("{} {event}", self.info.backend));
    }

    fn buffer(file: File, bytes: usize, usage: Usage) -> Buffer {
        Buffer::new(Arc::new(FileMemory(file)), bytes, usage)
    }
}

impl Backend for FileDriver {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.inner.supports(graph, node)
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        Ok(FileDriver::buffer(file, bytes, usage))
    }

    fn allocate_exported(&self, bytes: usize, usage: Usage) -> Result<(Buffer, ExportedMemory)> {
        let buffer = self.allocate(bytes, usage)?;
        let copy = file(&buffer).try_clone().unwrap();
        Ok((buffer, ExportedMemory::new(copy.into(), bytes as u64)))
    }

    fn adopt(&self, memory: ExportedMemory, bytes: usize, usage: Usage) -> Result<Buffer> {
        let mut imports = lock(&self.imports);
        if *imports == 0 {
            return Err(Error::Driver {
                backend: self.info.backend.clone(),
                phase: Phase::Allocate,
                node: None,
                call: "import",
                code: 1,
                name: "refused".into(),
            });
        }
        *imports -= 1;
        match self.elsewhere {
            true => self.allocate(bytes, usage),
            false => Ok(FileDriver::buffer(memory.into_descriptor().into(), bytes, usage)),
        }
    }

    fn hand_over(&self) -> Result<()> {
        self.note("hands over");
        Ok(())
    }

    fn take_over(&self) -> Result<()> {
        self.note("takes over");
        Ok(())
    }

    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.note("writes");
        file(buffer).write_all_at(data, offset as u64).unwrap();
        Ok(())
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.note("reads");
        file(buffer).read_exact_at(out, offset as u64).unwrap();
        Ok(())
    }

    fn copy(&self, _from: &Slice, _to: &Slice, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        _bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        self.inner.prepare(graph, plan, &Bindings::default(), options)
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

fn pair(change: impl FnOnce(&mut FileDriver)) -> (Result<Pair>, Arc<Mutex<Vec<String>>>) {
    let log = Arc::default();
    let (first, mut second) = (FileDriver::new("one:0", &log), FileDriver::new("two:0", &log));
    change(&mut second);
    (Pair::new(Arc::new(first), Arc::new(second)), log)
}

/// Each driver reads what the other wrote, and work changes the driver only when it has to.
#[test]
fn drivers_take_turns() {
    let (pair, log) = pair(|_| ());
    let pair = pair.unwrap();
    assert_eq!(pair.device().backend, "one:0+two:0");
    let taken = |log: &Mutex<Vec<String>>| std::mem::take(&mut *lock(log)).join(", ");
    assert_eq!(
        taken(&log),
        "one:0 writes, one:0 hands over, two:0 takes over, two:0 reads, two:0 writes, two:0 hands over, one:0 takes over, \
         one:0 reads"
    );
    let buffer = pair.allocate(16, Usage::Weights).unwrap();
    let (mut read, [one, two]) = ([0; 4], [0, 1].map(|i| pair.driver(i)));
    two.download(&buffer, 4, &mut read).unwrap();
    assert_eq!(read, [0; 4]);
    assert_eq!(
        taken(&log),
        "one:0 hands over, two:0 takes over, two:0 reads",
        "the exporter may have cleared it"
    );
    two.upload(&buffer, 4, &[1, 2, 3, 4]).unwrap();
    two.download(&buffer, 4, &mut read).unwrap();
    one.download(&buffer, 4, &mut read).unwrap();
    one.upload(&buffer, 0, &[9; 4]).unwrap();
    assert_eq!(read, [1, 2, 3, 4]);
    let turns = "two:0 writes, two:0 reads, two:0 hands over, one:0 takes over, one:0 reads, one:0 writes";
    assert_eq!(taken(&log), turns);
    assert_eq!(pair.changes(), 4);
    let foreign = pair.card.drivers[0].allocate(16, Usage::State).unwrap();
    assert!(matches!(two.upload(&foreign, 0, &[1]), Err(Error::InvalidArgument { .. })));
}

/// Programs run in their driver's turn; a run that only ends needs none.
#[test]
fn programs_wait_for_the_other_driver() {
    let (pair, log) = pair(|_| ());
    let pair = pair.unwrap();
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [4, 1, 1, 1], crate::Source::Input).unwrap();
    let y = g.scale(x, 2.0, 0.0).unwrap();
    g.output(y).unwrap();
    let plan = Plan::fused(&g, pair.driver(1), Precision::Exact).unwrap();
    let arena: Vec<Buffer> =
        plan.arena.iter().map(|&bytes| pair.allocate(bytes, Usage::Compute).unwrap()).collect();
    let bindings = Bindings { compute: arena, ..Bindings::default() };
    let prepare = |i: usize| pair.driver(i).prepare(&g, &plan, &bindings, PrepareOptions::default()).unwrap();
    let (mut one, mut two) = (prepare(0), prepare(1));
    lock(&log).clear();
    for _ in 0..2 {
        two.write(x, &[0; 16]).unwrap();
        two.run().unwrap();
        one.run().unwrap();
        one.run().unwrap();
    }
    let events = lock(&log).clone();
    let turns = ["one:0 hands over", "two:0 takes over", "two:0 hands over", "one:0 takes over"];
    assert_eq!(events, [turns, turns].concat());
}

#[test]
fn memory_that_is_not_the_same_is_found() {
    let (pair, _) = pair(|second| second.elsewhere = true);
    match pair {
        Err(Error::Unavailable { reason, missing: Missing::Feature, .. }) => {
            assert!(
                reason.starts_with("two:0 does not read what one:0 wrote into shared memory"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_driver_that_refuses_memory_leaves_the_other_one_alone() {
    let (none, _) = pair(|second| second.imports = Mutex::new(0));
    assert!(matches!(none, Err(Error::Driver { call: "import", .. })));
    let (pair, _) = pair(|second| second.imports = Mutex::new(2));
    let pair = pair.unwrap();
    let both = pair.allocate(16, Usage::Weights).unwrap();
    assert_eq!(pair.driver(1).device().backend, "two:0");
    let one = pair.allocate(16, Usage::State).unwrap();
    assert_eq!(pair.driver(1).device().backend, "one:0");
    for buffer in [&both, &one] {
        let mut read = [0; 4];
        pair.upload(buffer, 8, &[1, 2, 3, 4]).unwrap();
        pair.driver(1).download(buffer, 8, &mut read).unwrap();
        assert_eq!(read, [1, 2, 3, 4]);
    }
    let (needs_both, _) = self::pair(|second| second.imports = Mutex::new(1));
    let needs_both = needs_both.unwrap();
    needs_both.require_both();
    assert!(matches!(needs_both.allocate(16, Usage::State), Err(Error::Driver { call: "import", .. })));
    let staging = pair.allocate(16, Usage::Staging).unwrap();
    assert!(staging.downcast::<PairMemory>().unwrap().imported.is_none());
}

#[test]
fn limits_hold_for_both() {
    let limits = |max_allocation, max_binding, alignment| Limits { max_allocation, max_binding, alignment };
    assert_eq!(common(&limits(10, 7, 256), &limits(8, 9, 64)), limits(8, 7, 256));
}
