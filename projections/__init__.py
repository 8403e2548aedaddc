"""Read models as pure folds over events in position order."""
