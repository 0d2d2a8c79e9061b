"""LifecycleManager: tells what became of each executor, and clears ended pods away."""
