//! Test hook: runs a test's code at a chosen point in the engine.

/// Something that a test does at a place of its choice.
#[derive(Default)]
pub(crate) struct TestHook(std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>);

impl TestHook {
    pub(crate) fn is(&self, what: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(what));
    }

    pub(crate) fn now(&self) {
        self.0.get().into_iter().for_each(|what| what());
    }
}

impl std::fmt::Debug for TestHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}
