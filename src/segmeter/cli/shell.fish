complete -c segmeter -a '(env COMP_LINE=(commandline -cp) segmeter -sc query=fish)'
