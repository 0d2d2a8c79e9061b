"""The examples of docs/examples run to their end, as their READMEs say, also when an executor is killed."""
